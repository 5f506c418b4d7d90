"""`prepare` does first-use work at once; the index file keeps its results, and searches measure nothing any more."""

from pathlib import Path

import faiss
import numpy as np
import pytest
from reference import assert_same_arrays, clustered, quick, with_rows

import cfe_faiss as cfe
from cfe_faiss._native import has_bytes
from cfe_faiss.files.format import read_header
from cfe_faiss.index.searching import EvidenceIndex
from cfe_faiss.search import derived
from cfe_faiss.search import derived as derived_module
from cfe_faiss.search import recall as recall_module

FACTORIES = ["Flat", "SQ8", "SQfp16", "PQ6,RFlat"]
K, RECALL = 7, 0.9


def built(factory: str = "Flat", partitions: int = 1) -> EvidenceIndex:
    X, labels = clustered(900, 12, 4)
    index: EvidenceIndex = quick(cfe.index_factory(12, f"EvidenceIVF20x{partitions},{factory}"))
    index.train(X)
    index.add_with_labels(X, labels)
    return index


def results(index: EvidenceIndex) -> list[np.ndarray]:
    xq, labels_q = clustered(30, 12, 4, seed=1)
    found = [
        index.search_evidence(xq[i : i + 1], labels_q[i : i + 1], K, recall=RECALL)
        for i in range(30)
    ]
    found += [index.search_stored(k=K, recall=RECALL), index.search_stored(k=K, nprobe=3)]
    return [array for result in found for array in result]


def refuse_first_use(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise AssertionError("measured again")

    monkeypatch.setattr(recall_module, "_strata", refused)
    monkeypatch.setattr(derived_module.Routes, "of", refused)


@pytest.mark.parametrize(
    ("factory", "partitions"),
    [
        pytest.param(
            factory, partitions, marks=[pytest.mark.slow] * (i % 2 == partitions % 2 and i > 0)
        )
        for i, factory in enumerate(FACTORIES)
        for partitions in (1, 2)
    ],
)
def test_searches_measure_nothing_after_prepare_even_from_a_file(
    factory: str, partitions: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = built(factory, partitions)
    wanted = results(built(factory, partitions))
    assert index.choice is None
    index.prepare(K, RECALL)
    assert index.choice in ("float", "byte")
    cfe.write_index(index, tmp_path / "a.index")
    refuse_first_use(monkeypatch)
    for read in (
        index,
        cfe.read_index(tmp_path / "a.index"),
        cfe.read_index(tmp_path / "a.index", faiss.IO_FLAG_MMAP),
    ):
        assert read.choice == index.choice
        assert_same_arrays(results(read), wanted)


def test_the_file_of_an_index_that_was_not_prepared_holds_no_calibration(tmp_path: Path) -> None:
    index = built()
    results(index)
    cfe.write_index(index, tmp_path / "a.index")
    header = read_header(tmp_path / "a.index")
    shapes = {section["name"]: section["shape"] for section in header["sections"]}
    assert header["parameters"]["choice"] == ""
    assert shapes["calibrations"] == [0, 4]
    assert cfe.read_index(tmp_path / "a.index").choice is None


@pytest.mark.parametrize("choice", ["float", "byte", None])
def test_results_do_not_depend_on_the_choice(choice: str | None, tmp_path: Path) -> None:
    index = built()
    wanted = results(index)
    index.choice = choice
    assert index.choice == choice
    cfe.write_index(index, tmp_path / "a.index")
    for one in (index, cfe.read_index(tmp_path / "a.index")):
        assert one.choice == choice
        assert_same_arrays(results(one), wanted)


def test_a_change_keeps_the_choice_and_measures_recall_again() -> None:
    index = built()
    index.prepare(K, RECALL)
    choice = index.choice
    X, labels = clustered(400, 12, 4, seed=3)
    index.add_with_labels(X, labels, np.arange(400) + 5000)
    index.remove_ids(np.arange(100))
    assert index.choice == choice
    again = cfe.deserialize_index(cfe.serialize_index(index))
    assert_same_arrays(results(index), results(again))


def test_only_indexes_with_lists_have_a_choice() -> None:
    flat = with_rows(cfe.IndexEvidenceIDMap2(3), np.eye(3), [0, 1, 1])
    flat.prepare()
    assert flat.choice is None
    with pytest.raises(AttributeError, match="choice"):
        flat.choice = "float"
    with pytest.raises(ValueError, match="choice must be 'float', 'byte' or None, got 'double'"):
        built().choice = "double"
    with pytest.raises(ValueError, match="the index must hold vectors, got an empty one"):
        cfe.IndexEvidenceIVF(4, 3).prepare()


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [
        ("calibrations", (0, 0), 0.0),
        ("calibrations", (0, 1), 1.5),
        ("calibrations", (0, 2), 0.5),
        ("calibrations", (0, 3), np.nan),
        ("calibration_starts", (1,), -1),
        ("calibration_classes", (0, 0), -2.0),
        ("calibration_classes", (0, 1), 21.0),
        ("calibration_classes", (0, 2), np.inf),
    ],
)
def test_invalid_calibrations_are_damage(
    name: str, place: tuple[int, ...], value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = built()
    index.prepare(K, RECALL)
    stock, parameters, arrays = index.parts()
    arrays[name] = arrays[name].copy()
    arrays[name][place] = value
    monkeypatch.setattr(type(index), "parts", lambda _: (stock, parameters, arrays))
    data = cfe.serialize_index(index)
    with pytest.raises(ValueError, match="data is damaged: its calibrations are not valid"):
        cfe.deserialize_index(data)


def test_an_unknown_choice_is_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    index = built()
    stock, parameters, arrays = index.parts()
    monkeypatch.setattr(
        type(index), "parts", lambda _: (stock, parameters | {"choice": "half/float"}, arrays)
    )
    with pytest.raises(ValueError, match=r"choice must be .* got 'half/float'"):
        cfe.serialize_index(index)


@pytest.mark.skipif(not has_bytes(), reason="queries read stored vectors")
@pytest.mark.parametrize("alone", ["float", "byte"])
def test_a_file_keeps_how_single_queries_read_rows(
    alone: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(derived, "by_dimension", lambda *_: derived.Choice("byte", alone))
    index = built()
    wanted = results(index)
    index.prepare(K, RECALL)
    for name in ("a.index", "b.index"):
        cfe.write_index(index, tmp_path / name)
        assert read_header(tmp_path / name)["parameters"]["choice"] == f"{index.choice}/{alone}"
        index = cfe.read_index(tmp_path / name)
        assert_same_arrays(results(index), wanted)
