"""Indexes in streams: FAISS's writers and readers, and Python's binary files, hold the bytes of the file."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from reference import clustered

import cfe_faiss as cfe
from cfe_faiss.index.protocol import EvidenceIndex

KINDS = ["EvidenceFlat", "EvidenceIVF9x2,Flat", "EvidenceIVF9,SQ8", "EvidenceIVF9,PQ6,RFlat"]
RAW, LABELS = clustered(600, 12, 3)


def built(kind: str = "EvidenceIVF9,Flat") -> EvidenceIndex:
    index = cfe.index_factory(12, kind)
    if kind != "EvidenceFlat":
        index.train(RAW)
    index.add_with_labels(RAW, LABELS)
    return index


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
    for one, two in zip(found.search_stored(k=3), index.search_stored(k=3), strict=True):
        assert_array_equal(one, two)
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
