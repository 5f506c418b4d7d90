"""Serialized and copied indexes, and indexes in streams, have all data of a file; damage gives the same errors."""

import copy
import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from reference import assert_same_arrays, clustered, quick

import cfe_faiss as cfe
from cfe_faiss.index.searching import EvidenceIndex

KINDS = [
    "IDMap2,EvidenceFlat",
    "EvidenceIVF9,Flat",
    "EvidenceIVF9x3,Flat",
    "EvidenceIVF9x2,SQ8",
    "EvidenceIVF9,PQ6,RFlat",
]
RAW, LABELS = clustered(600, 12, 3)


def built(kind: str = "EvidenceIVF9,Flat") -> EvidenceIndex:
    index = quick(cfe.index_factory(12, kind))
    if kind != "IDMap2,EvidenceFlat":
        index.train(RAW)
        index.nprobe = 4
    index.add_with_labels(RAW[:400], LABELS[:400], np.arange(400) * 3 + 1000)
    index.add(RAW[400:])
    return index


def answers(index: EvidenceIndex) -> list[Any]:
    members = index.members()
    found = [
        members.ids,
        members.labels,
        *index.search_stored(k=4),
        *index.search_evidence(RAW[:1], [0], 5),
    ]
    found += [*index.search(RAW[:30], 3), *index.range_search_evidence(RAW[:30], LABELS[:30], 0.5)]
    if not isinstance(index, cfe.IndexEvidenceIDMap2):
        found += [index.centroids(), index.routes().means, *index.search_certified(k=3)]
    return found


def assert_same(one: EvidenceIndex, two: EvidenceIndex) -> None:
    assert type(one) is type(two)
    assert repr(one) == repr(two)
    assert_same_arrays(answers(one), answers(two))


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_equal_the_file_and_give_the_index_back(kind: str, tmp_path: Path) -> None:
    index = built(kind)
    cfe.write_index(index, tmp_path / "a.index")
    data = cfe.serialize_index(index)
    assert (data.dtype, data.ndim) == (np.uint8, 1)
    assert data.tobytes() == (tmp_path / "a.index").read_bytes()
    for given in (data, data.tobytes(), bytearray(data), memoryview(data.tobytes())):
        assert_same(cfe.deserialize_index(given), index)
    stock = faiss.deserialize_index(data)
    assert type(stock) is type(faiss.downcast_index(index))
    found = stock.search(RAW[:5], 3)[1]
    assert_array_equal(found, faiss.downcast_index(index).search(RAW[:5], 3)[1])


@pytest.mark.parametrize("kind", KINDS)
def test_an_index_from_bytes_shares_no_memory_with_them(kind: str) -> None:
    index = built(kind)
    data = cfe.serialize_index(index)
    again = cfe.deserialize_index(data)
    data[:] = 0
    again.add_with_labels(RAW[:5], LABELS[:5], np.arange(5) + 10**6)
    again.relabel(np.zeros(605, int))
    assert_same(index, built(kind))
    assert (again.search_stored(k=2)[1] == -1).all()  # only one class


@pytest.mark.parametrize("kind", KINDS)
def test_empty_indexes_are_cloned_and_written_with_their_settings(kind: str) -> None:
    index = cfe.index_factory(12, kind)
    for again in (cfe.clone_index(index), cfe.deserialize_index(cfe.serialize_index(index))):
        assert repr(again) == repr(index)
        if kind != "IDMap2,EvidenceFlat":
            again.train(RAW)
        again.add_with_labels(RAW, LABELS)
        assert again.search_stored(k=3)[1].min() >= 0


def test_a_clone_trains_as_the_index_would() -> None:
    index = cfe.IndexEvidenceIVF.paper(12, partitions=3, clusters=5)
    index.cp.niter, index.cp.seed = 3, 17
    clone = cfe.clone_index(index)
    assert (clone.cp.niter, clone.cp.seed, clone.cp.max_points_per_centroid) == (3, 17, 1 << 30)
    assert (clone.complete, clone.routing) == (False, "nearest")
    for one in (index, clone):
        one.train(RAW)
    assert_array_equal(clone.centroids(), index.centroids())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("flags", [faiss.IO_FLAG_MMAP, faiss.IO_FLAG_READ_ONLY])
def test_a_clone_of_a_mapped_index_is_in_memory_and_can_be_changed(
    kind: str, flags: int, tmp_path: Path
) -> None:
    cfe.write_index(built(kind), tmp_path / "a.index")
    mapped = cfe.read_index(tmp_path / "a.index", flags)
    assert mapped.to_stock().ntotal == 600
    for clone in (
        cfe.clone_index(mapped),
        copy.deepcopy(mapped),
        pickle.loads(pickle.dumps(mapped)),
    ):
        assert_same(clone, mapped)
    assert cfe.serialize_index(mapped).tobytes() == (tmp_path / "a.index").read_bytes()
    (tmp_path / "a.index").unlink()
    clone.add_with_labels(RAW[:5], LABELS[:5], np.arange(5) + 10**6)
    clone.relabel(np.arange(605) % 4)
    assert clone.search_stored(k=2)[1].min() >= 0
    with pytest.raises(RuntimeError, match="cannot be changed"):
        mapped.reset()


@pytest.mark.parametrize(
    ("data", "got"),
    [
        ("text", "str"),
        (np.zeros(9), "float64 of shape"),
        (np.zeros((3, 3), np.uint8), "uint8 of shape"),
    ],
)
def test_other_objects_than_bytes_are_refused(data: Any, got: str) -> None:
    with pytest.raises(TypeError, match=f"data must be bytes or a uint8 array.*got {got}"):
        cfe.deserialize_index(data)


def test_other_objects_than_evidence_indexes_are_refused() -> None:
    stock = faiss.IndexFlatIP(4)
    for use in (cfe.serialize_index, cfe.clone_index):
        with pytest.raises(TypeError, match="index must be an evidence index, got IndexFlatIP"):
            use(stock)
    with pytest.raises(ValueError, match="data is not an evidence index"):
        cfe.deserialize_index(faiss.serialize_index(stock))
    with pytest.raises(ValueError, match="data is not an evidence index"):
        cfe.deserialize_index(b"")


def test_an_index_with_another_quantizer_is_not_written() -> None:
    index = built("EvidenceIVF9,Flat")
    other = faiss.IndexScalarQuantizer(
        12, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT
    )
    other.add(index.centroids()[0])
    other.this.disown()
    index.quantizer = other
    with pytest.raises(ValueError, match="the index is not as evidence indexes must be"):
        cfe.serialize_index(index)


# --- streams ----------------------------------------------------------------------------------------------------------


class Slow(io.RawIOBase):
    """A raw file that takes and gives few bytes at a time."""

    def __init__(self, data: bytes = b"") -> None:
        self.data = io.BytesIO(data)

    def write(self, data: Any) -> int:
        return self.data.write(bytes(data)[:1000])

    def read(self, size: int = -1) -> bytes:
        return self.data.read(min(size, 1000))


def written(index: EvidenceIndex, stream: Any) -> Any:
    cfe.write_index(index, stream)
    return stream


def to_vector(index: EvidenceIndex, path: Path) -> bytes:
    writer = written(index, faiss.VectorIOWriter())
    data: bytes = faiss.vector_to_array(writer.data).tobytes()
    return data


def to_callback(index: EvidenceIndex, path: Path) -> bytes:
    file = io.BytesIO()
    cfe.write_index(index, faiss.PyCallbackIOWriter(file.write, 1000))
    return file.getvalue()


def to_faiss_file(index: EvidenceIndex, path: Path) -> bytes:
    cfe.write_index(index, faiss.FileIOWriter(str(path)))
    return path.read_bytes()


def to_open_file(index: EvidenceIndex, path: Path) -> bytes:
    with path.open("wb") as file:
        cfe.write_index(index, file)
    return path.read_bytes()


WRITERS: list[Callable[[EvidenceIndex, Path], bytes]] = [
    to_vector,
    to_callback,
    to_faiss_file,
    to_open_file,
    lambda index, path: written(index, io.BytesIO()).getvalue(),
    lambda index, path: written(index, Slow()).data.getvalue(),
]


def of_vector(data: bytes, path: Path) -> Any:
    reader = faiss.VectorIOReader()
    faiss.copy_array_to_vector(np.frombuffer(data, np.uint8), reader.data)
    return reader


def of_faiss_file(data: bytes, path: Path) -> Any:
    path.write_bytes(data)
    return faiss.FileIOReader(str(path))


READERS: list[Callable[[bytes, Path], Any]] = [
    of_vector,
    of_faiss_file,
    lambda data, path: faiss.BufferedIOReader(of_faiss_file(data, path), 100),
    lambda data, path: faiss.PyCallbackIOReader(io.BytesIO(data).read),
    lambda data, path: io.BytesIO(data),
    lambda data, path: Slow(data),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("to_bytes", WRITERS)
def test_a_stream_gets_the_bytes_of_the_file(to_bytes: Any, kind: str, tmp_path: Path) -> None:
    index = built(kind)
    data = to_bytes(index, tmp_path / "stream")
    assert data == cfe.serialize_index(index).tobytes()
    assert index.origins == ()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reader", READERS)
def test_a_stream_gives_the_index(reader: Any, kind: str, tmp_path: Path) -> None:
    index = built(kind)
    found = cfe.read_index(reader(cfe.serialize_index(index).tobytes(), tmp_path / "stream"))
    assert type(found) is type(index)
    assert_same_arrays(found.search_stored(k=3), index.search_stored(k=3))
    found.relabel(np.zeros(len(RAW), int))  # it is in memory


def test_a_stream_is_read_from_its_position_to_its_end() -> None:
    file = io.BytesIO(b"a heading")
    file.seek(0, io.SEEK_END)
    cfe.write_index(built(), file)
    file.seek(len(b"a heading"))
    assert cfe.read_index(file).ntotal == 600
    assert file.read() == b""
    with pytest.raises(ValueError, match=r"BytesIO object.* is not an evidence index"):
        cfe.read_index(io.BytesIO(file.getvalue()[:-10]))


def test_a_stream_may_be_read_only_but_not_mapped() -> None:
    data = cfe.serialize_index(built()).tobytes()
    index = cfe.read_index(io.BytesIO(data), faiss.IO_FLAG_READ_ONLY)
    with pytest.raises(RuntimeError, match="cannot be changed"):
        index.reset()
    with pytest.raises(ValueError, match="io_flags must not ask to map a stream"):
        cfe.read_index(io.BytesIO(data), faiss.IO_FLAG_MMAP)


def test_what_a_stream_does_not_take_is_an_error(tmp_path: Path) -> None:
    index = built()
    with pytest.raises(ValueError, match="overwrite must be left out for a stream"):
        cfe.write_index(index, io.BytesIO(), overwrite=True)
    with pytest.raises(TypeError, match="path must be a path, a binary file"):
        cfe.write_index(index, io.StringIO())
    with pytest.raises(TypeError, match="path must be a path, a binary file"):
        cfe.read_index(io.StringIO())
    with pytest.raises(TypeError, match="index must be an evidence index"):
        cfe.write_index(index.to_stock(), io.BytesIO())
    with pytest.raises(OSError, match=r"took 0 of \d+ bytes"):
        cfe.write_index(index, Full())


class Full(io.RawIOBase):
    """A file without room."""

    def write(self, data: Any) -> int:
        return 0
