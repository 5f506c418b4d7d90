"""The border to FAISS: the package changes nothing in FAISS, and its objects follow Python's protocols."""

import copy
import inspect
import pickle
import textwrap
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
from reference import clustered, output_of, unit, with_rows

import cfe_faiss as cfe
from cfe_faiss import audit
from cfe_faiss.rows import faiss_functions
from cfe_faiss.scale import ShardedEvidenceIndex, write_shards

N, D = 300, 8
RAW, LABELS = clustered(N, D, 3)
X = unit(RAW)
KINDS = [
    "EvidenceFlat",
    "IDMap2,EvidenceFlat",
    "EvidenceIVF4,Flat",
    "EvidenceIVF4x2,Flat",
    "EvidenceIVF4,SQ8",
    "EvidenceIVF4,PQ4,RFlat",
    "EvidenceIVF4_HNSW4,Flat",
    "PCA4,EvidenceIVF4,Flat",
]


def filled(kind: str) -> Any:
    return with_rows(cfe.index_factory(D, kind), X, LABELS)


# --- FAISS stays as it is ---------------------------------------------------------------------------------------------

USE = """
import sys
import faiss
import faiss.contrib.evaluation, faiss.contrib.factory_tools, faiss.contrib.ivf_tools
def contents():
    found = {}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "faiss":
            found[name] = dict(vars(module))
            for symbol, value in vars(module).items():
                if isinstance(value, type):
                    found[name, symbol] = dict(vars(value))
    return found
before = contents()
import numpy as np
import cfe_faiss as cfe
def check():
    after = contents()
    assert before.keys() == after.keys(), before.keys() ^ after.keys()
    for key, values in before.items():
        changed = [n for n in {**values, **after[key]} if values.get(n, n) is not after[key].get(n, n)]
        assert not set(changed) - {"__warningregistry__"}, (key, changed)
check()
X = np.random.default_rng(0).normal(size=(300, 8)).astype("f4")
y = np.arange(300) % 3
for kind in KINDS:
    index = cfe.index_factory(8, kind)
    index.is_trained or index.train(X)
    index.add_with_labels(X, y)
    index.search(X[:3], 2, params=cfe.EvidenceParameters(labels=0))
    index.remove_ids([3])
    if hasattr(index, "search_stored"):
        cfe.deserialize_index(cfe.serialize_index(index)).search_stored(k=2)
cfe.EvidenceStore(8).add(["a"], X[:1], ["b"])
cfe.EvidenceFinder.from_vectors(X, y).local(k=2)
check()
cfe.register()
cfe.unregister()
check()
print("the same")
"""


def test_import_and_use_change_nothing_in_faiss() -> None:
    assert "the same" in output_of(USE.replace("KINDS", repr(KINDS)))


@pytest.mark.parametrize(
    "order",
    [
        "import cfe_faiss as cfe, faiss.contrib.torch_utils",
        "import faiss.contrib.torch_utils, cfe_faiss as cfe",
        "import cfe_faiss as cfe; cfe.register(); import faiss.contrib.torch_utils",
        "import faiss.contrib.torch_utils, cfe_faiss as cfe; cfe.register()",
    ],
)
def test_torch_utils_in_any_order(order: str) -> None:
    pytest.importorskip("torch")
    code = f"""
    {order}
    import faiss, torch
    X = torch.eye(4)
    for index in (cfe.IndexEvidenceFlat(4, "ip"), cfe.IndexEvidenceIDMap2(4, "ip"), faiss.IndexFlatIP(4)):
        index.add(X)
        D, I = index.search(X, 1)
        assert torch.is_tensor(D) and I.ravel().tolist() == [0, 1, 2, 3]
    D, I = index.search(X.numpy(), 1)
    assert I.ravel().tolist() == [0, 1, 2, 3]
    cfe.unregister()
    print("searched")
    """
    assert "searched" in output_of(textwrap.dedent(code))


def test_a_missing_symbol_of_faiss_names_the_versions_that_work() -> None:
    with pytest.raises(ImportError, match=r"needs Index_teleport .* does not have: install"):
        faiss_functions.compiled_functions(("Index_add", "Index_teleport"))


def test_the_versions_that_work_are_those_of_the_requirements() -> None:
    requirements = Path(__file__).parents[2] / "pyproject.toml"
    assert f'"{faiss_functions.SUPPORTED}"' in requirements.read_text(encoding="utf-8")


# --- Python's protocols -----------------------------------------------------------------------------------------------


def objects(folder: Path) -> list[Any]:
    """Return an object of each class that users hold."""
    indexes = [filled(kind) for kind in KINDS]
    write_shards(indexes[2], folder / "shards", 2)
    store = cfe.EvidenceStore(D)
    store.add(["a", "b", "c"], X[:3], ["x", "y", None], [{"page": 1}, {}, {}])
    finder = cfe.EvidenceFinder.from_vectors(X, LABELS)
    return [
        *indexes,
        indexes[0].excluding(0),
        indexes[2].excluding(1),
        ShardedEvidenceIndex.open(folder / "shards"),
        store,
        store.evidence("a", k=1),
        finder,
        finder.local(nodes=[1, 2], k=2),
        finder.top_pairs(k=3),
        cfe.EvidenceParameters(labels=[0]),
    ]


def test_attributes_follow_the_protocol(tmp_path: Path) -> None:
    for one in objects(tmp_path):
        assert not hasattr(one, "nonsense"), one
        assert getattr(one, "nonsense", 7) == 7
        assert hasattr(one, "index") in (True, False)
        assert len(inspect.getmembers(one)) > 10
        assert len(dir(one)) > 10
        assert repr(one)


def test_only_an_id_map_has_an_inner_index() -> None:
    assert [hasattr(filled(kind), "index") for kind in KINDS[:3]] == [False, True, False]


def test_copies_follow_the_protocol(tmp_path: Path) -> None:
    for one in objects(tmp_path):
        for twin in (copy.copy(one), copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
            assert type(twin) is type(one)
            for size in ("ntotal", "__len__"):
                if hasattr(one, size):
                    assert getattr(twin, size, None) == getattr(one, size) or len(twin) == len(one)


def test_subclasses_are_copied_as_they_are() -> None:
    class Mine(cfe.IndexEvidenceFlat):
        pass

    index = Mine(D)
    index.add_with_labels(X, LABELS)
    assert type(copy.deepcopy(index)) is Mine


@pytest.mark.parametrize("kind", KINDS)
def test_an_index_has_one_base_of_faiss(kind: str) -> None:
    bases = [base for base in type(filled(kind)).__mro__ if base.__module__.startswith("faiss")]
    chain = [base for base in bases[0].__mro__ if base.__module__.startswith("faiss")]
    assert bases == chain


# --- errors that name the remedy --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        audit.consistency,
        audit.discrimination_scores,
        audit.error_rate_by_evidence,
        audit.similarity_graph,
        lambda index: audit.direct_effects(index, unfavourable=0),
        lambda index: audit.direction_test(index, attribute="sex", value="f", unfavourable=0),
        lambda index: audit.situation_test(index, attribute="sex", protected="f", unfavourable=0),
        lambda index: audit.only_in(index, ["sex"]),
        lambda index: audit.flip(index, "sex"),
        lambda index: audit.compare_models(index, {}),
        lambda index: audit.fine_tune(index, pairs=None),
        lambda index: audit.report(index, "unused.html"),
    ],
)
def test_an_audit_of_an_index_needs_a_finder(call: Any) -> None:
    for index in (filled("EvidenceFlat"), filled("EvidenceIVF4,Flat")):
        with pytest.raises(TypeError, match=r"finder .*got IndexEvidence.*from_index"):
            call(index)


def test_indexes_whose_ids_move_are_refused_where_ids_must_stay() -> None:
    for call in (
        lambda: cfe.EvidenceStore(D, cfe.IndexEvidenceFlat(D)),
        lambda: cfe.EvidenceFinder.from_vectors(X, LABELS, index=cfe.IndexEvidenceFlat(D)),
        lambda: cfe.EvidenceFinder.from_index(filled("EvidenceFlat")).updated(
            remove_nodes=[3], predictions=LABELS
        ),
    ):
        with pytest.raises(TypeError, match=r"index must have ids that stay .* give"):
            call()
    for made in (
        cfe.EvidenceStore(D)._contents.index,
        cfe.EvidenceStore(D, "EvidenceFlat")._contents.index,
        cfe.EvidenceFinder.from_vectors(X, LABELS).index,
        cfe.EvidenceFinder.from_vectors(X, LABELS, index="EvidenceFlat").index,
        cfe.EvidenceNeighbors().fit(X, LABELS).index_,
    ):
        assert isinstance(made, cfe.IndexEvidenceIDMap2)
        assert isinstance(made, faiss.IndexIDMap2)
    for kind in KINDS[:2]:
        finder = cfe.EvidenceFinder.from_index(filled(kind))
        assert len(finder.local(nodes=[1], k=2).to_frame()) == 2
        assert np.asarray(finder.labels).tolist() == LABELS.tolist()
