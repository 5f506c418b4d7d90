import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import faiss
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from numpy.testing import assert_array_equal
from reference import Stored, clustered, stored_vectors, unit

import cfe_faiss as cfe
from cfe_faiss.index import io

Index = cfe.IndexEvidenceFlat | cfe.IndexEvidenceIVF


def built(kind: str) -> Index:
    X, labels = clustered(600, 12, 3)
    index: Index = cfe.IndexEvidenceFlat(12)
    if kind == "ivf":
        index = cfe.IndexEvidenceIVF(12, 9, 3, theta=1.0, weighted=False)
        index.nprobe = 4
    if kind == "paper":
        index = cfe.IndexEvidenceIVF.paper(12, partitions=3, clusters=5)
    if not index.is_trained:
        index.train(X)
    index.add_with_labels(X[:400], labels[:400], np.arange(400) * 3 + 1000)
    index.add(X[400:])
    return index


@pytest.mark.parametrize("kind", ["flat", "ivf", "paper"])
def test_round_trip(kind: str, tmp_path: Path) -> None:
    index = built(kind)
    cfe.write_index(index, tmp_path / "a.index")
    again = cfe.read_index(tmp_path / "a.index")
    assert type(again) is type(index)
    assert repr(again) == repr(index)
    xq, labels_q = clustered(40, 12, 3, seed=1)
    for one, two in (
        (index.search_members(k=7), again.search_members(k=7)),
        (index.search_evidence(xq, labels_q, 5), again.search_evidence(xq, labels_q, 5)),
        (index.range_search_evidence(xq, labels_q, 0.6), again.range_search_evidence(xq, labels_q, 0.6)),
    ):
        for a, b in zip(one, two, strict=True):
            assert_array_equal(a, b)
    again.relabel(np.arange(600) % 5)
    index.relabel(np.arange(600) % 5)
    again.add_with_labels(xq, labels_q, np.arange(5000, 5040))
    index.add_with_labels(xq, labels_q, np.arange(5000, 5040))
    for a, b in zip(index.search_members(k=7), again.search_members(k=7), strict=True):
        assert_array_equal(a, b)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(stored_vectors(least=4, lowest_label=-1))
def test_round_trip_of_anything(tmp_path: Path, stored: Stored) -> None:
    flat = cfe.IndexEvidenceFlat(stored.X.shape[1])
    ivf = cfe.IndexEvidenceIVF(stored.X.shape[1], 4, 2)
    ivf.train(stored.X)
    for index in (flat, ivf):
        index.add_with_ids(stored.X, stored.ids)
        index.relabel(stored.labels, stored.ids)
        cfe.write_index(index, tmp_path / "a.index")
        again = cfe.read_index(tmp_path / "a.index")
        for a, b in zip(index.search_members(k=stored.k), again.search_members(k=stored.k), strict=True):
            assert_array_equal(a, b)


@pytest.mark.parametrize("kind", ["flat", "ivf"])
def test_empty_indexes_round_trip(kind: str, tmp_path: Path) -> None:
    index = cfe.IndexEvidenceFlat(3) if kind == "flat" else cfe.IndexEvidenceIVF(3, 4, 2)
    cfe.write_index(index, tmp_path / "a.index")
    again = cfe.read_index(tmp_path / "a.index")
    assert again.ntotal == 0
    if kind == "ivf":
        again.train(np.eye(3).repeat(2, axis=0))
    again.add_with_labels(np.eye(3), [0, 1, 1])
    assert_array_equal(again.search_members([0], k=2)[1], [[1, 2]])


def test_stock_faiss_reads_the_same_file_in_a_process_without_us(tmp_path: Path) -> None:
    index = built("ivf")
    cfe.write_index(index, tmp_path / "a.index")
    xq = unit(clustered(5, 12, 3)[0])
    np.save(tmp_path / "xq.npy", xq)
    code = (
        "import sys, faiss, numpy as np; ix = faiss.read_index(sys.argv[1]); "
        "D, I = ix.search(np.load(sys.argv[2]), 3); assert 'cfe_faiss' not in sys.modules; "
        "print(type(ix).__name__, I.tolist())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "a.index", tmp_path / "xq.npy"],
        capture_output=True,
        text=True,
        check=True,
    )
    _, I = index.search(xq, 3)
    assert done.stdout.strip() == f"IndexIVFFlat {I.tolist()}"


@pytest.mark.parametrize("kind", ["flat", "ivf"])
def test_damage_is_an_error(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "a.index"
    cfe.write_index(built(kind), path)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for size in rng.integers(0, len(whole), 40):
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match=r"a\.index"):
            cfe.read_index(path)
    for place in rng.integers(0, len(whole), 200).tolist() + list(range(len(whole) - 24, len(whole))):
        broken = bytearray(whole)
        broken[place] ^= 1 << rng.integers(8)
        path.write_bytes(broken)
        try:
            again = cfe.read_index(path)
        except ValueError:
            pass
        else:  # a bit of the padding between two sections
            assert_array_equal(again.search_members(k=3)[1], built(kind).search_members(k=3)[1])


def test_files_that_are_not_ours_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.index"
    faiss.write_index(faiss.IndexFlatIP(3), str(path))
    with pytest.raises(ValueError, match="not an evidence index"):
        cfe.read_index(path)
    with pytest.raises(FileNotFoundError):
        cfe.read_index(tmp_path / "none")
    with pytest.raises(TypeError, match="index must be an IndexEvidenceFlat or IndexEvidenceIVF, got IndexFlatIP"):
        cfe.write_index(faiss.IndexFlatIP(3), path)  # type: ignore[arg-type]


def test_a_newer_version_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(io, "_VERSION", 2)
    cfe.write_index(built("flat"), tmp_path / "a.index")
    monkeypatch.undo()
    with pytest.raises(ValueError, match="format version 2, this cfe_faiss reads up to 1"):
        cfe.read_index(tmp_path / "a.index")


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.index"
    cfe.write_index(built("flat"), path)
    before = path.read_bytes()

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(io, "_append_footer", fail)
    with pytest.raises(OSError, match="disk full"):
        cfe.write_index(built("ivf"), path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["a.index"]


def test_a_killed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.index"
    cfe.write_index(built("flat"), path)
    before = path.read_bytes()
    code = (
        "import os, signal, sys, numpy as np, cfe_faiss as cfe\n"
        "from cfe_faiss.index import io\n"
        "index = cfe.IndexEvidenceFlat(8)\n"
        "index.add_with_labels(np.eye(8), range(8))\n"
        "io._append_footer = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "cfe.write_index(index, sys.argv[1])\n"
    )
    done = subprocess.run([sys.executable, "-c", code, path], check=False)
    assert done.returncode == -signal.SIGKILL
    assert path.read_bytes() == before
    assert cfe.read_index(path).ntotal == 600


def test_files_are_as_readable_as_the_user_wants(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        cfe.write_index(built("flat"), tmp_path / "a.index")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "a.index").stat().st_mode) == 0o640
