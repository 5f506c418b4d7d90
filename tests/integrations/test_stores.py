"""What the stores of all three frameworks do: one suite over them. What is special to a framework has its own file."""

import math
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from framework_stores import (
    CLASSES,
    EVERYTHING,
    FRAMEWORKS,
    IDS,
    LABELS,
    NEW,
    XQ,
    Ticket,
    X,
    metadata_of,
    nearest,
    of_other_class,
    ticket,
)
from hypothesis import given
from hypothesis import strategies as st
from tickets import TEXTS, D, classify, embed

import cfe_faiss as cfe
from cfe_faiss.integrations.adapter import checked_store
from cfe_faiss.store import EvidenceError, Watch


@pytest.fixture(scope="module", params=FRAMEWORKS)
def framework(request: pytest.FixtureRequest) -> Any:
    return FRAMEWORKS[request.param]()


def filled(framework: Any) -> Any:
    store = framework.make()
    framework.add(store, [ticket(i) for i in EVERYTHING])
    return store


def ids_of(found: Any) -> list[str]:
    return [id_ for id_, _ in found]


@given(st.integers(1, 4), st.integers(1, 12))
def test_at_most_some_results_of_a_class(framework: Any, most: int, k: int) -> None:
    store = filled(framework)
    expected: list[str] = []
    for id_ in nearest(XQ, len(EVERYTHING)):
        of_class = [one for one in expected if LABELS[IDS.index(one)] == LABELS[IDS.index(id_)]]
        expected += [id_] if len(of_class) < most else []
    assert ids_of(framework.similar(store, NEW, k, per_group=most)) == expected[:k]
    with pytest.raises(ValueError, match="per_group must be at least 1, got 0"):
        framework.similar(store, NEW, k, per_group=0)


# --- evidence ---------------------------------------------------------------------------------------------------------


def test_evidence_is_the_nearest_of_another_class(framework: Any) -> None:
    store = filled(framework)
    for i in EVERYTHING:
        others = of_other_class(LABELS[i])
        found = framework.evidence(store, IDS[i], 3)
        assert ids_of(found) == nearest(X[i], 3, others)
        expected = [X[IDS.index(id_)] @ X[i] for id_ in ids_of(found)]
        assert [score for _, score in found] == pytest.approx(expected, abs=1e-6)
        assert all(type(score) is float for _, score in found)
        assert framework.evidence(store, ticket(i), 3) == found
        assert len(framework.evidence(store, IDS[i], 50)) == len(others)


def test_evidence_of_a_new_document(framework: Any) -> None:
    store = filled(framework)
    for label in CLASSES:
        new = Ticket("new", NEW, {"label": label})
        expected = nearest(XQ, 4, of_other_class(label))
        assert ids_of(framework.evidence(store, new, 4)) == expected


def test_documents_without_a_class_are_found_but_are_no_evidence(framework: Any) -> None:
    store = filled(framework)
    framework.add(store, [Ticket("new", NEW, {"place": 99})])
    assert ids_of(framework.similar(store, NEW, 1)) == ["new"]
    for i in EVERYTHING:
        assert "new" not in ids_of(framework.evidence(store, IDS[i], 50))
    for query in ("new", Ticket("other", NEW)):
        with pytest.raises(ValueError, match="label"):
            framework.evidence(store, query, 4)
    framework.below(store).relabel({"new": "complaint"})
    expected = nearest(XQ, 4, of_other_class("complaint"))
    assert ids_of(framework.evidence(store, "new", 4)) == expected


def test_a_watch_reports_or_refuses_documents(framework: Any) -> None:
    store = filled(framework)
    below = framework.below(store)
    wrong = Ticket("new", TEXTS[3], {"label": CLASSES[LABELS[3] == CLASSES[0]]})
    fine = Ticket("other", TEXTS[5], {"label": LABELS[5]})
    with pytest.raises(EvidenceError, match="watch refused") as refused:
        framework.add(store, [fine, wrong], watch=Watch(0.99, on="refuse"))
    assert refused.value.pairs.source.tolist() == ["new"]
    assert refused.value.pairs.target.tolist() == [IDS[3]]
    assert below.ids == IDS
    told: list[Any] = []
    framework.add(store, [fine, wrong], watch=Watch(0.99, tell=told.extend))
    assert [hits.ids for hits in told] == [[], [IDS[3]]]
    assert below.ids == [*IDS, "other", "new"]
    framework.add(store, [fine, wrong], watch=0.99)  # the old versions are no evidence
    assert set(below.ids) == {*IDS, "other", "new"}


def test_relabelling_by_another_classifier(framework: Any) -> None:
    store = filled(framework)
    flipped = {id_: CLASSES[label == "request"] for id_, label in zip(IDS, LABELS, strict=True)}
    framework.below(store).relabel(flipped)
    assert [one.metadata["label"] for one in framework.get(store, IDS)] == [*flipped.values()]
    for i in EVERYTHING:
        expected = nearest(X[i], 3, of_other_class(LABELS[i]))
        assert ids_of(framework.evidence(store, IDS[i], 3)) == expected
    framework.below(store).relabel({IDS[0]: "praise", IDS[1]: None})
    found = [one.metadata.get("label") for one in framework.get(store, IDS[:2])]
    assert found == ["praise", None]
    assert IDS[1] not in ids_of(framework.evidence(store, IDS[0], 50))


def test_classes_under_another_key_and_as_integers(framework: Any) -> None:
    store = framework.make(label_key="class")
    classes = classify(TEXTS)  # integers of NumPy
    framework.add(store, [ticket(i, **{"class": classes[i]}) for i in EVERYTHING])
    assert framework.below(store).get(IDS).labels == classes.tolist()
    for i in EVERYTHING:
        found = ids_of(framework.evidence(store, IDS[i], 2))
        assert found == nearest(X[i], 2, of_other_class(LABELS[i]))
        metadata = [one.metadata for one in framework.get(store, found)]
        assert [one["class"] for one in metadata] == [1 - classes[i]] * 2
        assert [one["label"] for one in metadata] == [CLASSES[1 - classes[i]]] * 2
    assert type(metadata[0]["class"]) is int


# --- similar documents, filters ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", [None, "EvidenceIVF2,Flat"])
def test_the_most_similar_documents(framework: Any, index: str | None) -> None:
    store = framework.make(index)
    below = framework.below(store)
    if index:
        below.train(np.tile(X, (6, 1)))
        below.index.nprobe = 2
    framework.add(store, [ticket(i) for i in EVERYTHING])
    for text in [NEW, *TEXTS]:
        xq = embed([text])[0]
        found = framework.similar(store, text, 4)
        assert ids_of(found) == nearest(xq, 4)
        expected = pytest.approx(np.sort(X @ xq)[::-1][:4], abs=1e-6)
        assert [score for _, score in found] == expected
        assert all(type(score) is float for _, score in found)
    assert len(framework.similar(store, NEW, 99)) == len(TEXTS)


FILTERS: list[tuple[Any, Any]] = [
    ([("label", "==", "complaint")], lambda m: m["label"] == "complaint"),
    ([("parity", "!=", "odd")], lambda m: m["parity"] == "even"),
    ([("place", ">=", 3), ("place", "<", 9)], lambda m: 3 <= m["place"] < 9),
    ([("place", "in", [0, 1, 8]), ("label", "==", "request")], None),
    ([("place", "==", -1)], lambda m: False),
]


@pytest.mark.parametrize(("where", "admits"), FILTERS)
def test_every_search_is_exact_under_a_filter(framework: Any, where: Any, admits: Any) -> None:
    store = filled(framework)
    if admits is None:

        def admits(m: dict[str, Any]) -> bool:
            return m["place"] in (0, 1, 8) and m["label"] == "request"

    admitted = [i for i in EVERYTHING if admits(metadata_of(i))]
    assert ids_of(framework.similar(store, NEW, 5, where)) == nearest(XQ, 5, admitted)
    evidence = [i for i in admitted if LABELS[i] != LABELS[0]]
    assert ids_of(framework.evidence(store, IDS[0], 3, where)) == nearest(X[0], 3, evidence)
    framework.delete_where(store, where)
    left = [IDS[i] for i in EVERYTHING if i not in admitted]
    assert framework.below(store).ids == left


# --- rows of the store below, and changes -----------------------------------------------------------------------------


def test_documents_are_rows_of_the_store_below(framework: Any) -> None:
    store = filled(framework)
    rows = framework.below(store).get(IDS)
    assert rows.documents == TEXTS
    assert rows.labels == LABELS
    assert rows.metadata[3]["parity"] == "odd"
    np.testing.assert_allclose(rows.vectors, X, atol=1e-6)
    found = framework.get(store, IDS)
    expected = [(IDS[i], TEXTS[i], metadata_of(i)) for i in EVERYTHING]
    assert [(one.id, one.text, one.metadata) for one in found] == expected
    framework.below(store).add(
        ["row"], X[:1], labels=["request"], metadata=[{"lang": "en"}], documents=["a row"]
    )
    (row,) = framework.get(store, ["row"])
    assert (row.id, row.text) == ("row", "a row")
    assert row.metadata == {"lang": "en", "label": "request"}


def test_deleting(framework: Any) -> None:
    store = filled(framework)
    framework.delete(store, [*IDS[:3], "unknown"])
    left = EVERYTHING[3:]
    assert ids_of(framework.similar(store, NEW, 20)) == nearest(XQ, 20, left)
    evidence = [i for i in of_other_class(LABELS[5]) if i > 2]
    assert ids_of(framework.evidence(store, IDS[5], 20)) == nearest(X[5], 20, evidence)
    framework.clear(store)
    assert framework.similar(store, NEW, 3) == []
    framework.add(store, [ticket(i) for i in EVERYTHING])
    expected = nearest(X[0], 3, of_other_class(LABELS[0]))
    assert ids_of(framework.evidence(store, IDS[0], 3)) == expected


def test_adding_a_document_again_replaces_it(framework: Any) -> None:
    store = filled(framework)
    framework.add(store, [Ticket(IDS[3], "new", vector=np.ones(D))])
    assert len(framework.below(store)) == len(TEXTS)
    (found,) = framework.get(store, [IDS[3]])
    assert (found.text, found.metadata) == ("new", {})
    framework.add(store, [])
    assert len(framework.below(store)) == len(TEXTS)


ids = st.sampled_from([f"id {i}" for i in range(6)])
classes = st.sampled_from(["a", "b", "c", None])
angles = st.integers(0, 359)
STEPS = st.lists(
    st.tuples(st.just("add"), ids, angles, classes)
    | st.tuples(st.just("delete"), ids, angles, classes)
    | st.tuples(st.just("relabel"), ids, angles, classes),
    max_size=20,
)


def at(angle: int) -> list[float]:
    return [math.cos(math.radians(angle)), math.sin(math.radians(angle)), *[0.0] * (D - 2)]


@given(steps=STEPS)
def test_changes_in_any_order(framework: Any, steps: list[Any]) -> None:
    store, stored = framework.make(), {}
    for name, id_, angle, label in steps:
        if name == "add":
            stored[id_] = (angle, label)
            metadata = {} if label is None else {"label": label}
            framework.add(store, [Ticket(id_, str(angle), metadata, at(angle))])
        elif name == "delete":
            stored.pop(id_, None)
            framework.delete(store, [id_])
        elif id_ in stored:
            stored[id_] = (stored[id_][0], label)
            framework.below(store).relabel({id_: label})
    found = framework.get(store, [f"id {i}" for i in range(6)])
    assert {one.id: (int(one.text), one.metadata.get("label")) for one in found} == stored
    for id_, (angle, label) in stored.items():
        if label is None:
            continue
        others = [a for a, other in stored.values() if other not in (None, label)]
        expected = sorted((math.cos(math.radians(angle - a)) for a in others), reverse=True)
        scores = [score for _, score in framework.evidence(store, id_, 6)]
        assert scores == pytest.approx(expected, abs=1e-6)


def test_many_threads_may_add_to_an_empty_store(framework: Any) -> None:
    store = framework.make()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: framework.add(store, [ticket(i)]), EVERYTHING))
    found = {one.id: one.metadata for one in framework.get(store, IDS)}
    assert found == {IDS[i]: metadata_of(i) for i in EVERYTHING}


# --- files ------------------------------------------------------------------------------------------------------------


def test_saving_and_loading(framework: Any, tmp_path: Path) -> None:
    store = framework.make(label_key="class")
    extra = {"page_content": "mine", "nested": {"pages": [1, 2]}, "share": 1 / 3, "none": None}
    framework.add(store, [ticket(i, **{"class": LABELS[i]}, **extra) for i in EVERYTHING])
    framework.save(store, tmp_path / "store")
    loaded = framework.load(tmp_path / "store", label_key="class")
    assert framework.get(loaded, IDS) == framework.get(store, IDS)
    assert framework.get(loaded, IDS)[3].metadata["nested"] == {"pages": [1, 2]}
    for i in EVERYTHING:
        found = framework.evidence(loaded, IDS[i], 5)
        assert found == framework.evidence(store, IDS[i], 5)
    framework.add(loaded, [Ticket("new", NEW, {"class": "complaint"})])
    expected = nearest(XQ, 3, of_other_class("complaint"))
    assert ids_of(framework.evidence(loaded, "new", 3)) == expected


def test_an_empty_store_is_saved_too(framework: Any, tmp_path: Path) -> None:
    framework.save(framework.make(), tmp_path / "empty")
    loaded = framework.load(tmp_path / "empty")
    assert framework.similar(loaded, NEW, 3) == []
    framework.add(loaded, [ticket(i) for i in EVERYTHING])
    assert ids_of(framework.similar(loaded, NEW, 3)) == nearest(XQ, 3)


# --- wrong arguments --------------------------------------------------------------------------------------------------

FAULTS: list[tuple[Any, str]] = [
    (lambda f, store: f.evidence(store, "nobody", 3), "nobody"),
    (lambda f, store: f.evidence(store, Ticket("t", NEW, {"label": "praise"}), 3), "praise"),
    (lambda f, store: f.add(store, [ticket(0), Ticket("b", "short", vector=[1.0])]), "embedding"),
    (lambda f, store: f.add(store, [ticket(0), Ticket("b", "", {"tags": {1}})]), "tags"),
    (lambda f, store: f.add(store, [ticket(0), Ticket("b", "", {"label": 0.5})]), "label"),
    (lambda f, store: f.add(store, [ticket(0), Ticket("b", "", {"label": [1]})]), "label"),
]


@pytest.mark.parametrize(("change", "message"), FAULTS)
def test_errors_name_the_fault_and_change_nothing(
    framework: Any, change: Any, message: str
) -> None:
    store = filled(framework)
    before = framework.get(store, IDS), framework.similar(store, NEW, 20)
    with pytest.raises((ValueError, TypeError, KeyError), match=message):
        change(framework, store)
    assert (framework.get(store, IDS), framework.similar(store, NEW, 20)) == before


def test_a_missing_package_names_the_extra(framework: Any) -> None:
    module, extra = framework.module, framework.extra
    name = "langchain" if module == "langchain_core" else module
    code = f"import sys; sys.modules[{module!r}] = None; import cfe_faiss.integrations.{name}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    expected = f'ImportError: {module} is missing: pip install "cfe-faiss[{extra}]"\n'
    assert done.stderr.endswith(expected)


def test_a_store_of_another_metric_is_refused() -> None:
    """Frameworks take similarities for cosines."""
    store = cfe.EvidenceStore(2)
    assert checked_store(store) is store
    with pytest.raises(ValueError, match=r"store .*got 'l2'"):
        checked_store(cfe.EvidenceStore(2, metric="l2"))
