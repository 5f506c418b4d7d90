import json
import os
import signal
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
from index_files import as_version, parts_of, write_parts
from numpy.testing import assert_array_equal
from reference import assert_same_arrays, clustered, output_of, quick, unit

import cfe_faiss as cfe
from cfe_faiss.files.format import read_header, verify_index
from cfe_faiss.files.layout import read_payload
from cfe_faiss.files.outputs import new_file
from cfe_faiss.index.searching import EvidenceIndex

pytestmark = pytest.mark.usefixtures("without_sync")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.index"


FUZZER = Path(__file__).parents[2] / "benchmarks" / "fuzz_files.py"
Index = EvidenceIndex
KINDS = ["flat", "ivf", "fp16", "sq8", "pq"]


CODECS = {"fp16": "SQfp16", "sq8": "SQ8", "pq": "PQ6,RFlat"}


@lru_cache
def trained(kind: str) -> Index:
    X, _ = clustered(600, 12, 3)
    index: Index = cfe.IndexEvidenceIDMap2(12)
    if kind == "ivf":
        index = cfe.IndexEvidenceIVF(12, 9, 3, theta=1.0, weighted=False)
        index.nprobe = 4
    if kind == "paper":
        index = cfe.IndexEvidenceIVF.paper(12, partitions=3, clusters=5)
    if kind in CODECS:
        index = quick(cfe.index_factory(12, f"EvidenceIVF9x2,{CODECS[kind]}"))
        index.nprobe = 4
    if not index.is_trained:
        index.train(X)
    return index


def built(kind: str) -> Index:
    X, labels = clustered(600, 12, 3)
    index: Index = cfe.clone_index(trained(kind))
    index.add_with_labels(X[:400], labels[:400], np.arange(400) * 3 + 1000)
    index.add(X[400:])
    return index


READER = """
import sys, faiss, numpy as np
xq, *paths = sys.argv[1:]
for path in paths:
    index = faiss.read_index(path)
    print(type(index).__name__, index.search(np.load(xq), 3)[1].tolist())
assert "cfe_faiss" not in sys.modules
"""


def test_stock_faiss_reads_the_same_files_in_a_process_without_us(tmp_path: Path) -> None:
    xq = unit(clustered(5, 12, 3)[0])
    np.save(tmp_path / "xq.npy", xq)
    expected, quantizer = [], "IndexIVFScalarQuantizer"
    for kind, stock in {
        "ivf": "IndexIVFFlat",
        "fp16": quantizer,
        "sq8": quantizer,
        "pq": "IndexIVFPQ",
    }.items():
        index = built(kind)
        cfe.write_index(index, tmp_path / kind)
        expected.append(f"{stock} {index.to_stock().search(xq, 3)[1].tolist()}")
    paths = [tmp_path / kind for kind in KINDS[1:]]
    assert output_of(READER, tmp_path / "xq.npy", *paths).splitlines() == expected


def test_files_that_are_not_ours_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.index"
    faiss.write_index(faiss.IndexFlatIP(3), str(path))
    message = r"not an evidence index.*from_stock\(faiss.read_index\(path\), labels\)"
    with pytest.raises(ValueError, match=message):
        cfe.read_index(path)
    with pytest.raises(FileNotFoundError):
        cfe.read_index(tmp_path / "none")
    with pytest.raises(TypeError, match="index must be an evidence index, got IndexFlatIP"):
        cfe.write_index(faiss.IndexFlatIP(3), path)  # type: ignore[arg-type]


def test_another_version_is_an_error(path: Path) -> None:
    cfe.write_index(built("flat"), path)
    forged(path, said("version", 8))
    with pytest.raises(ValueError, match="format version 8, this cfe_faiss reads versions 2 to 7"):
        cfe.read_index(path)


KILLED = """
import os, signal, sys, numpy as np, cfe_faiss as cfe
from cfe_faiss.files import layout

index = cfe.IndexEvidenceIDMap2(8)
index.add_with_labels(np.eye(8), range(8))
layout._append_footer = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
for path in sys.argv[1:]:
    pid = os.fork()
    if pid == 0:
        cfe.write_index(index, path)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    vars(os).pop("O_TMPFILE", None)  # the second writer has no unnamed files
"""


def test_a_killed_write_leaves_the_old_file(tmp_path: Path) -> None:
    paths = [tmp_path / name / "a.index" for name in ("unnamed", "named")]
    for path in paths:
        path.parent.mkdir()
        cfe.write_index(built("flat"), path)
    before = paths[0].read_bytes()
    assert output_of(KILLED, *paths).split() == [str(-signal.SIGKILL)] * 2
    for path in paths:
        assert path.read_bytes() == before
        assert cfe.read_index(path).ntotal == 600
        # Without unnamed files, one remains until the next write.
        is_unnamed = path.parent.name == "unnamed" and hasattr(os, "O_TMPFILE")
        assert len(list(path.parent.iterdir())) == (1 if is_unnamed else 2)
        cfe.write_index(built("flat"), path)
        assert list(path.parent.iterdir()) == [path]


def test_a_file_that_is_being_written_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "O_TMPFILE", raising=False)  # the file has a name from the start
    path = tmp_path / "a.index"
    with suppress(KeyboardInterrupt), new_file(path, overwrite=False):
        cfe.write_index(built("flat"), path)
        assert len(list(tmp_path.iterdir())) == 2
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == [path]


# --- mapped -----------------------------------------------------------------------------------------------------------

MAPPED = (faiss.IO_FLAG_MMAP, faiss.IO_FLAG_MMAP_IFC, faiss.IO_FLAG_MMAP | faiss.IO_FLAG_READ_ONLY)


def searches(index: Index) -> list[Any]:
    xq, labels_q = clustered(40, 12, 3, seed=1)
    return [
        *index.search(unit(xq), 4),
        *index.search_evidence(xq, labels_q, 5),
        *index.search_stored(k=7),
        *index.range_search_evidence(xq, labels_q, 0.6),
        index.reconstruct_batch([1000, 1003]),
    ]


def sectors_mapped(path: Path) -> int:
    return Path("/proc/self/maps").read_text().count(str(path))


@pytest.mark.parametrize("flags", [0, *MAPPED])
@pytest.mark.parametrize("kind", [*KINDS, "paper"])
def test_a_file_gives_the_same_results(kind: str, flags: int, path: Path) -> None:
    index = built(kind)
    cfe.write_index(index, path)
    before = path.read_bytes()
    again = cfe.read_index(path, flags)
    assert type(again) is type(index)
    assert repr(again) == repr(index)
    assert_same_arrays(searches(again), searches(index))
    assert path.read_bytes() == before
    verify_index(path)
    if flags:
        return
    xq, labels_q = clustered(40, 12, 3, seed=1)
    for one in (index, again):
        one.relabel(np.arange(600) % 5)
        one.add_with_labels(xq, labels_q, np.arange(5000, 5040))
    assert_same_arrays(index.search_stored(k=7), again.search_stored(k=7))


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")
@pytest.mark.parametrize("kind", KINDS)
def test_a_mapped_index_lets_go_of_its_file(kind: str, path: Path) -> None:
    cfe.write_index(built(kind), path)
    mapped = cfe.read_index(path, faiss.IO_FLAG_MMAP)
    assert sectors_mapped(path)
    del mapped
    assert not sectors_mapped(path)


@pytest.mark.parametrize("flags", [*MAPPED, faiss.IO_FLAG_READ_ONLY])
@pytest.mark.parametrize("kind", KINDS)
def test_a_mapped_or_read_only_index_refuses_changes(kind: str, flags: int, path: Path) -> None:
    cfe.write_index(built(kind), path)
    before = path.read_bytes()
    mapped = cfe.read_index(path, flags)
    expected = searches(mapped)
    X = np.eye(12)
    changes: list[Callable[[], object]] = [
        lambda: mapped.add_with_labels(X, np.zeros(12, int), np.arange(12)),
        lambda: mapped.add_with_ids(X, np.arange(12)),
        lambda: mapped.add(X),
        lambda: mapped.relabel([2], [1000]),
        lambda: mapped.relabel(np.zeros(600, int)),
        lambda: mapped.remove_ids(np.array([1000])),
        lambda: mapped.remove_ids(faiss.IDSelectorRange(0, 10**9)),
        mapped.reset,
        lambda: mapped.merge_from(built(kind)),
    ]
    if kind != "flat":
        changes.append(lambda: mapped.train(clustered(600, 12, 3)[0]))
    for change in changes:
        with pytest.raises(RuntimeError, match=r"a\.index and cannot be changed"):
            change()
    assert_same_arrays(searches(mapped), expected)
    assert path.read_bytes() == before


@pytest.mark.parametrize("kind", KINDS)
def test_a_mapped_index_survives_the_replacement_of_its_file(kind: str, path: Path) -> None:
    cfe.write_index(built(kind), path)
    mapped = cfe.read_index(path, faiss.IO_FLAG_MMAP)
    expected = searches(cfe.read_index(path))
    cfe.write_index(mapped, path)
    assert_same_arrays(searches(cfe.read_index(path)), expected)
    cfe.write_index(cfe.IndexEvidenceIDMap2(3), path)
    assert_same_arrays(searches(mapped), expected)
    path.unlink()
    assert_same_arrays(searches(mapped), expected)


def test_each_part_of_a_mapped_file_is_checked_when_it_is_used(path: Path) -> None:
    cfe.write_index(built("paper"), path)
    whole = path.read_bytes()
    header = read_header(path)
    sections = {section["name"]: section for section in header["sections"]}
    rng = np.random.default_rng(0)

    def flipped(place: int) -> None:
        broken = bytearray(whole)
        broken[place] ^= 1 << rng.integers(8)
        path.write_bytes(broken)

    for name in ("centroids", "reference_starts"):
        flipped(sections[name]["offset"] + 5)
        message = rf"a\.index is damaged: the checksum of its section '{name}'"
        with pytest.raises(ValueError, match=message):
            cfe.read_index(path, faiss.IO_FLAG_MMAP)
    flipped(100)
    with pytest.raises(ValueError, match=r"a\.index is damaged"):
        cfe.read_index(path, faiss.IO_FLAG_MMAP)
    for name in ("labels", "references"):
        flipped(sections[name]["offset"] + 5)
        mapped = cfe.read_index(path, faiss.IO_FLAG_MMAP)
        for _ in range(2):
            message = rf"a\.index is damaged: the checksum of its section '{name}'"
            with pytest.raises(ValueError, match=message):
                mapped.search_stored(k=3)
    flipped(header["payload"]["size"] - 50)
    mapped = cfe.read_index(path, faiss.IO_FLAG_MMAP)
    for _ in range(2):
        with pytest.raises(ValueError, match=r"a\.index is damaged: the checksum of its list 4"):
            mapped.search_stored(k=3)
    with pytest.raises(ValueError, match=r"a\.index is damaged: the checksum of its vectors"):
        verify_index(path)


def test_vectors_besides_codes_are_checked_like_vectors_in_lists(path: Path) -> None:
    index = built("pq")
    cfe.write_index(index, path)
    whole = bytearray(path.read_bytes())
    place = section(read_header(path), "vectors")["offset"]
    found = np.frombuffer(whole, "<f4", 600 * 12, place).reshape(600, 12)
    assert_array_equal(found, index.storage().rows(np.arange(600))[0])
    whole[place + 5000] ^= 1
    path.write_bytes(whole)
    with pytest.raises(ValueError, match=r"a\.index is damaged: the checksum of its list \d does"):
        cfe.read_index(path, faiss.IO_FLAG_MMAP).search_stored(k=3, exact=True)
    for read in (cfe.read_index, verify_index):
        with pytest.raises(ValueError, match=r"a\.index is damaged: the checksum of its section"):
            read(path)
    whole[place + 5000 : place + 6000] = b"\xff" * 1000
    path.write_bytes(whole)
    as_version(path, 2)  # version 2 does not check the vectors of a mapped file
    xq, labels_q = clustered(5, 12, 3, seed=1)
    D, _ = cfe.read_index(path, faiss.IO_FLAG_MMAP).search_evidence(xq, labels_q, 600, 3)
    assert D.shape == (5, 600)


@pytest.mark.parametrize("version", [2, 3, 4, 5])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("flags", [0, faiss.IO_FLAG_MMAP])
def test_files_of_earlier_versions_are_read(
    kind: str, flags: int, version: int, path: Path
) -> None:
    index = built(kind)
    if kind != "flat":
        index.prepare(3)
    cfe.write_index(index, path)
    as_version(path, version)
    assert read_header(path)["version"] == version
    found = cfe.read_index(path, flags).search_stored(k=3)[1]
    assert_array_equal(found, index.search_stored(k=3)[1])
    verify_index(path)


def test_the_factor_of_a_file_is_checked(path: Path) -> None:
    index = built("pq")
    index.k_factor = 3  # an integer is as good as a float  # type: ignore[union-attr]
    cfe.write_index(index, path)
    assert cfe.read_index(path).k_factor == 3  # type: ignore[union-attr]
    cases = ((0.5, "k_factor must be .* got 0.5"), (float("nan"), "got nan"), ("2", "got '2'"))
    for value, message in cases:
        forged(path, said("parameters.k_factor", value))
        with pytest.raises(ValueError, match=message):
            cfe.read_index(path)


def test_other_flags_are_an_error(path: Path) -> None:
    cfe.write_index(built("flat"), path)
    for flags in (faiss.IO_FLAG_SKIP_IVF_DATA, faiss.IO_FLAG_SKIP_STORAGE, 1 << 20):
        with pytest.raises(ValueError, match="io_flags must combine IO_FLAG_MMAP"):
            cfe.read_index(path, flags)
    index = cfe.read_index(path, faiss.IO_FLAG_ONDISK_SAME_DIR | faiss.IO_FLAG_PQ_SKIP_SDC_TABLE)
    index.remove_ids(np.array([1000]))
    assert index.ntotal == 599


def test_the_header_can_be_read_alone(path: Path) -> None:
    cfe.write_index(built("ivf"), path)
    header = read_header(path)
    assert header["kind"] == "EvidenceIVF"
    assert header["version"] == 6
    assert header["parameters"]["theta"] == 1.0
    assert header["parameters"]["weighted"] is False


# --- forged -----------------------------------------------------------------------------------------------------------

Forge = Callable[[bytearray, dict[str, Any]], object]


def section(header: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in header["sections"] if one["name"] == name)
    return found


def put(name: str, place: int, value: int, item: int = 4) -> Forge:
    def forge(body: bytearray, header: dict[str, Any]) -> None:
        start = section(header, name)["offset"] + item * place
        body[start : start + item] = value.to_bytes(item, "little", signed=True)

    return forge


def said(path: str, value: object) -> Forge:
    def forge(_: bytearray, header: dict[str, Any]) -> None:
        *way, last = path.split(".")
        place: Any = header
        for key in way:
            place = (
                section(header, key)
                if place is header and key in ("labels", "references")
                else place[key]
            )
        place[last] = value

    return forge


def forged(path: Path, forge: Forge) -> None:
    """Change a file and update all its checksums."""
    body, header = parts_of(path)
    sections, size = [dict(one) for one in header["sections"]], header["payload"]["size"]
    forge(body, header)
    header["payload"]["crc32"] = zlib.crc32(body[:size])
    for one, true in zip(header["sections"], sections, strict=False):
        one["crc32"] = zlib.crc32(
            body[
                true["offset"] : true["offset"]
                + int(np.prod(true["shape"])) * int(true["dtype"][2])
            ]
        )
    write_parts(path, body, header)


def assert_damaged(path: Path, message: str, flags: int) -> None:
    with pytest.raises(ValueError, match=rf"a\.index is damaged: .*({message})"):
        cfe.read_index(path, flags).search_stored(k=3)
    with pytest.raises(ValueError, match=r"a\.index is damaged"):
        verify_index(path)


@pytest.mark.parametrize("flags", [0, faiss.IO_FLAG_MMAP])
def test_a_forged_nprobe_is_an_error(flags: int, path: Path) -> None:
    index = built("ivf")
    for nprobe, message in ((2**63 - 1, None), (2**63, f"nprobe = {2**63}")):
        index.nprobe = 2**63 - 1
        cfe.write_index(index, path)
        with path.open("rb") as file:
            structure = read_payload(
                "EvidenceIVF", file, read_header(path)["payload"]["size"], "cosine"
            ).start

        def forge(
            body: bytearray,
            header: dict[str, Any],
            nprobe: int = nprobe,
            structure: int = structure,
        ) -> None:
            place = body.index((2**63 - 1).to_bytes(8, "little"))
            body[place : place + 8] = nprobe.to_bytes(8, "little")
            header["payload"]["structure_crc32"] = zlib.crc32(body[:structure])

        forged(path, forge)
        if message is None:
            assert cfe.read_index(path, flags).nprobe == 2**63 - 1
        else:
            with pytest.raises(ValueError, match=message):
                cfe.read_index(path, flags)


@pytest.mark.parametrize("flags", [0, faiss.IO_FLAG_MMAP])
@pytest.mark.parametrize(
    ("forge", "message"),
    [
        (put("label_codes", 0, -1), "labels are not in order"),
        (put("label_codes", 1, 0), "labels are not in order"),
        (put("label_codes", 2, 9), "labels have no names"),
        (put("label_keys", 0, 255, 2), "can't decode"),
        (put("label_ends", 0, 2, 8), "texts of its labels do not fit|labels are not in order"),
        (put("label_ends", 2, 9, 8), "texts of its labels do not fit"),
    ],
)
def test_forged_labels_are_an_error(forge: Forge, message: str, flags: int, path: Path) -> None:
    index: Any = built("ivf")
    index.reset()
    X, labels = clustered(600, 12, 3)
    index.add_with_labels(X, np.array(["a", "b", "c"])[labels])
    cfe.write_index(index, path)
    forged(path, forge)
    assert_damaged(path, message, flags)


@pytest.mark.parametrize("flags", [0, faiss.IO_FLAG_MMAP])
@pytest.mark.parametrize(
    ("forge", "message"),
    [
        (said("kind", "EvidenceHNSW"), "kind must be one of .*, got 'EvidenceHNSW'"),
        (said("kind", "EvidenceFlat"), r"header\.parameters\.\w+ is unknown"),
        (said("kind", ["EvidenceIVF"]), r"kind must be one of .*, got \['EvidenceIVF'\]"),
        (said("version", True), "version must be an integer .*, got True"),
        (said("format", "other"), "format must be one of 'cfe_faiss', got 'other'"),
        (said("parameters.theta", "1"), r"parameters\.theta must be a number .*, got '1'"),
        (said("parameters.theta", 4.0), "theta must be a number from 0.001 to 1.57.*, got 4.0"),
        (said("parameters.weighted", 1), r"parameters\.weighted must be one of False, True, got 1"),
        (said("parameters.extra", 1), r"parameters\.extra is unknown"),
        (said("payload.size", -1), r"payload\.size must be an integer from 0 .*, got -1"),
        (said("payload.size", 2**70), r"payload\.size must be an integer|begins at byte"),
        (said("payload.structure_crc32", None), r"payload\.structure_crc32 .*got None"),
        (said("sections", {}), "sections must be a list, got {}"),
        (said("sections", []), "has the sections"),
        (said("labels.name", "references"), "has the sections"),
        (said("labels.dtype", "|O"), "has dtype '|O', not '<i4'"),
        (said("labels.dtype", "<i8"), "has dtype '<i8', not '<i4'"),
        (said("labels.shape", [-600]), r"sections\[\d\]\.shape\[0\] .*got -600"),
        (said("labels.shape", [2**61]), "begins at byte|beyond its header"),
        (said("labels.shape", [599]), "has shape \\(599,\\), not \\(600,\\)"),
        (said("labels.shape", [600.0]), r"sections\[\d\]\.shape\[0\] .*got 600.0"),
        (said("labels.offset", 0), "begins at byte 0"),
        (said("references.shape", [1, 1200]), "has shape"),
        (put("labels", 0, -2), "labels lie in -2"),
        (put("labels", 3, 2**31 - 1), "labels lie in"),
        (put("labels", 0, 2**31 - 2), "not in ascending order"),
        (put("references", 0, -1), "do not hold each vector once"),
        (put("references", 0, 600), "do not hold each vector once"),
        (put("reference_starts", 0, -1, 8), "do not hold each vector once"),
        (put("reference_starts", 1, 601, 8), "do not hold each vector once"),
        (put("reference_starts", 10, 1201, 8), "do not hold each vector once"),
        (put("centroids", 0, -1), "centroids are not finite"),
    ],
)
def test_forged_footers_are_an_error(forge: Forge, message: str, flags: int, path: Path) -> None:
    cfe.write_index(built("paper"), path)
    forged(path, forge)
    assert_damaged(path, message, flags)


@pytest.mark.parametrize("flags", [0, faiss.IO_FLAG_MMAP])
@pytest.mark.parametrize(
    ("forge", "message"),
    [
        (put("route_lists", 0, -1, 8), "routes lead to lists that it does not have"),
        (put("route_lists", 0, 27, 8), "routes lead to lists that it does not have"),
        (put("route_starts", 0, 1, 8), "routes are not in order"),
        (put("route_starts", 1, 2**40, 8), "routes are not in order"),
        (put("route_labels", 1, 0), "routes are not in order"),
        (put("route_filled", 0, 2, 1), "routes are not in order"),
        (put("route_entry_filled", 0, -1, 1), "routes are not in order"),
        (said("parameters.routing", "fast"), "routing must be one of .*, got 'fast'"),
        (said("parameters.routing", "nearest"), "'route_means' has shape"),
    ],
)
def test_forged_routes_are_an_error(forge: Forge, message: str, flags: int, path: Path) -> None:
    cfe.write_index(built("ivf"), path)
    forged(path, forge)
    assert_damaged(path, message, flags)


def stock_flat(
    metric: int = faiss.METRIC_INNER_PRODUCT, ids: Any = range(1000, 1600), scale: float = 1.0
) -> Any:
    stock = faiss.IndexIDMap2(faiss.IndexFlat(12, metric))
    stock.add_with_ids(scale * unit(clustered(600, 12, 3)[0]), np.array(ids))
    return stock


def stock_ivf(nlist: int = 9, metric: int = faiss.METRIC_INNER_PRODUCT, d: int = 12) -> Any:
    X = unit(clustered(600, d, 3)[0])
    quantizer = faiss.IndexFlat(d, metric)
    quantizer.add(X[:nlist])
    stock = faiss.IndexIVFFlat(quantizer, d, nlist, metric)
    stock.is_trained = True
    stock.add(X)
    return stock


def with_ntotal(stock: Any, ntotal: int) -> Any:
    stock.ntotal = ntotal
    return stock


def with_more_centroids(stock: Any) -> Any:
    stock.quantizer.add(np.eye(12, dtype=np.float32))
    return stock


def stock_codes(
    codec: str,
    kind: str,
    metric: int = faiss.METRIC_INNER_PRODUCT,
    residual: bool | None = None,
    scale: float = 1.0,
) -> Any:
    X = scale * unit(clustered(600, 12, 3)[0])
    stock = faiss.index_factory(12, f"IVF9,{'SQ8' if codec == 'PQ6x8' else codec}", metric)
    stock.cp.min_points_per_centroid = 1
    if kind == "pq":
        stock.do_polysemous_training = False  # it takes 16 s, and no evidence index uses it
        stock.pq.cp.min_points_per_centroid = 1
    stock.by_residual = kind == "pq" if residual is None else residual
    stock.train(X)
    stock.add(X)
    return stock


def with_levels(stock: Any, value: float, count: int = 24) -> Any:
    faiss.copy_array_to_vector(np.full(count, value, np.float32), stock.sq.trained)
    return stock


def with_codewords(stock: Any, value: float, count: int = 256 * 12) -> Any:
    faiss.copy_array_to_vector(np.full(count, value, np.float32), stock.pq.centroids)
    return stock


def with_graph(forge: Callable[[Any], None] = lambda hnsw: None, d: int = 12) -> Any:
    """Return a stock inverted file whose centroids have a graph."""
    quantizer = faiss.IndexHNSWFlat(d, 2, faiss.METRIC_INNER_PRODUCT)
    quantizer.add(unit(clustered(600, d, 3)[0])[:9])
    stock = faiss.IndexIVFFlat(quantizer, d, 9, faiss.METRIC_INNER_PRODUCT)
    stock.is_trained = True
    stock.add(unit(clustered(600, 12, 3)[0]))
    forge(quantizer.hnsw)
    return stock


def set_first(vector: Any, value: int) -> None:
    numbers = faiss.vector_to_array(vector)
    numbers[0] = value
    faiss.copy_array_to_vector(numbers, vector)


@pytest.mark.parametrize(
    ("kind", "stock", "message"),
    [
        ("ivf", lambda: with_graph(lambda hnsw: set_first(hnsw.neighbors, 9)), "links to nowhere"),
        ("ivf", lambda: with_graph(lambda hnsw: set_first(hnsw.neighbors, -2)), "links to nowhere"),
        ("ivf", lambda: with_graph(lambda hnsw: set_first(hnsw.levels, 99)), "is not as it must"),
        ("ivf", lambda: with_graph(lambda hnsw: set_first(hnsw.levels, 0)), "is not as it must"),
        ("ivf", lambda: with_graph(lambda hnsw: set_first(hnsw.levels, 3)), "other numbers"),
        ("ivf", lambda: with_graph(lambda hnsw: set_first(hnsw.offsets, 1)), "other numbers"),
        ("ivf", lambda: with_graph(lambda hnsw: hnsw.neighbors.resize(3)), "numbers of neighbours"),
        ("ivf", lambda: with_graph(lambda hnsw: setattr(hnsw, "entry_point", 9)), "begins at 9"),
        ("ivf", lambda: with_graph(lambda hnsw: setattr(hnsw, "max_level", 5)), "graph .* begins"),
        ("ivf", lambda: with_graph(lambda hnsw: setattr(hnsw, "efSearch", 0)), "is not as it must"),
        ("flat", stock_ivf, "the index is b'IwFl'"),
        ("ivf", stock_flat, "the index is b'IxM2'"),
        ("flat", lambda: stock_flat(faiss.METRIC_L2), "metric 1|is b'IxF2'"),
        (
            "flat",
            lambda: faiss.index_factory(12, "IDMap2,HNSW4,Flat", faiss.METRIC_INNER_PRODUCT),
            "is b'IHNf'",
        ),
        ("flat", lambda: with_ntotal(stock_flat(), 601), "not 12 and 601"),
        ("flat", lambda: stock_flat(ids=[7] * 600), "ids are not distinct"),
        ("flat", lambda: stock_flat(ids=range(-5, 595)), "must lie in"),
        ("flat", lambda: stock_flat(scale=2.0), "not of length 1"),
        ("flat", lambda: stock_flat(scale=np.nan), "not of length 1"),
        ("ivf", lambda: stock_ivf(metric=faiss.METRIC_L2), "metric 1"),
        ("ivf", lambda: stock_ivf(nlist=8), "has shape"),
        ("ivf", lambda: stock_ivf(d=13), "has shape"),
        ("ivf", lambda: with_ntotal(stock_ivf(), 599), "hold 600 vectors, not ntotal = 599"),
        ("ivf", lambda: with_more_centroids(stock_ivf()), "ntotal = 21, not 12 and 9"),
        ("sq8", stock_ivf, "the index is b'IwFl', not b'IwSq'"),
        ("pq", lambda: stock_codes("PQ6x8", "sq"), "the index is b'IwSq', not b'IwPQ'"),
        ("sq8", lambda: stock_codes("SQ8", "sq", metric=faiss.METRIC_L2), "metric 1"),
        ("sq8", lambda: stock_codes("SQ4", "sq"), "scalar quantizer is of type 1"),
        ("sq8", lambda: stock_codes("SQ8", "sq", residual=True), "the mark of residuals is 1"),
        ("sq8", lambda: with_levels(stock_codes("SQ8", "sq"), np.nan), "levels of its"),
        ("sq8", lambda: with_levels(stock_codes("SQ8", "sq"), -1.0), "levels of its"),
        ("sq8", lambda: with_levels(stock_codes("SQ8", "sq"), 3e38), "levels of its"),
        ("sq8", lambda: with_levels(stock_codes("SQ8", "sq"), 0.5, 23), "scalar quantizer has 23"),
        ("fp16", lambda: with_levels(stock_codes("SQfp16", "sq"), 0.5), "scalar quantizer has 24"),
        ("sq8", lambda: stock_codes("SQ8", "sq", scale=3.0), "not of length 1"),
        ("fp16", lambda: stock_codes("SQfp16", "sq", scale=0.5), "not of length 1"),
        ("pq", lambda: stock_codes("PQ6x4", "pq"), "bits of a part of a code is 4|number of parts"),
        ("pq", lambda: stock_codes("PQ6", "pq", residual=False), "the mark of residuals is 0"),
        ("pq", lambda: with_codewords(stock_codes("PQ6", "pq"), np.inf), "codewords of its"),
        ("pq", lambda: with_codewords(stock_codes("PQ6", "pq"), 0.5, 100), "codewords of its"),
    ],
)
def test_payloads_that_do_not_belong_are_an_error(
    kind: str, stock: Callable[[], Any], message: str, path: Path
) -> None:
    cfe.write_index(built(kind), path)
    replace_payload(path, stock())
    with pytest.raises(ValueError, match=rf"a\.index is damaged: .*({message})"):
        cfe.read_index(path)
    with pytest.raises(ValueError, match=rf"a\.index is damaged: .*({message})"):
        verify_index(path)


def test_a_graph_of_the_centroids_is_kept(path: Path) -> None:
    index = cfe.index_factory(12, "EvidenceIVF40x2_HNSW4,Flat")
    cfe.write_index(index, path)
    assert not cfe.read_index(path).is_trained
    X, labels = clustered(600, 12, 3)
    index.train(X)
    index.add_with_labels(X, labels)
    cfe.write_index(index, path)
    verify_index(path)
    for flags in (0, faiss.IO_FLAG_MMAP):
        found: Any = cfe.read_index(path, flags)
        assert type(faiss.downcast_index(found.quantizer)) is faiss.IndexHNSWFlat
        assert_same_arrays(found.search(X, 3), index.search(X, 3))
        np.testing.assert_array_equal(found.search_stored(k=3)[1], index.search_stored(k=3)[1])


def list_checksums(stock: Any) -> bytes:
    """Return the checksums of codes and ids of each list of a stock index."""
    lists, sums = stock.invlists, []
    for number in range(stock.nlist):
        size = lists.list_size(number)
        parts = (lists.get_codes(number), stock.code_size * size), (lists.get_ids(number), size)
        sums += [zlib.crc32(faiss.rev_swig_ptr(*part).tobytes()) if size else 0 for part in parts]
    return np.array(sums, "<u4").tobytes()


def replace_payload(path: Path, stock: Any) -> None:
    whole, header = parts_of(path)
    payload = faiss.serialize_index(stock).tobytes()
    body, by_lists = bytearray(payload), isinstance(stock, faiss.IndexIVF)
    for one in header["sections"]:
        data = whole[
            one["offset"] : one["offset"] + int(np.prod(one["shape"])) * int(one["dtype"][2])
        ]
        if by_lists and one["name"] == "list_checksums" and one["shape"][0] == stock.nlist:
            data = list_checksums(stock)
            one["crc32"] = zlib.crc32(data)
        body += bytes(-len(body) % 64)
        one["offset"] = len(body)
        body += data
    data_size = stock.ntotal * (stock.code_size + 8 if by_lists else 4 * stock.d + 8) + (
        0 if by_lists else 8
    )
    header["payload"] = {
        "size": len(payload),
        "crc32": zlib.crc32(payload),
        "structure_crc32": zlib.crc32(payload[: max(0, len(payload) - data_size)]),
    }
    write_parts(path, body, header)


def test_payloads_that_do_belong_are_read(path: Path) -> None:
    cfe.write_index(built("flat"), path)
    replace_payload(path, stock_flat(ids=range(2000, 2600)))
    assert_array_equal(cfe.read_index(path).members().ids, np.arange(2000, 2600))


@pytest.mark.parametrize(
    "text", [b"[" * 100_000, b"{", b"[]", b"9" * 5000, b"\xff", b'{"format": "cfe_faiss"}']
)
def test_headers_that_are_not_ours_are_an_error(text: bytes, path: Path) -> None:
    path.write_bytes(text + struct.pack("<QQI4s", 0, len(text), zlib.crc32(text), b"CFE1"))
    with pytest.raises(ValueError, match=r"a\.index is damaged: (its )?header"):
        cfe.read_index(path)


@pytest.mark.parametrize("count", [150, pytest.param(500, marks=pytest.mark.slow)])
def test_mutated_files_never_crash_the_reader(count: int) -> None:
    done = subprocess.run(
        [sys.executable, FUZZER, str(count), "7"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout[done.stdout.index("{") :])
    assert found["wrong"] == 0
    assert sum(found["counts"].values()) == count
    assert found["counts"]["damage, in memory: clean error"] > count / 10


# --- target of a write ------------------------------------------------------------------------------------------------


def test_a_link_goes_on_pointing_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "link.index"
    link.symlink_to("real/a.index")
    for kind in ("flat", "ivf"):
        cfe.write_index(built(kind), link)
        assert link.is_symlink()
        assert type(cfe.read_index(tmp_path / "real" / "a.index")) is type(built(kind))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write into any folder")
def test_a_read_only_folder_is_an_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(PermissionError, match="cannot write into the folder of the file"):
            cfe.write_index(built("flat"), tmp_path / "a.index")
    finally:
        tmp_path.chmod(0o700)


FULL = """
import resource, signal, sys
from pathlib import Path
import cfe_faiss as cfe

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # so that writes fail as on a full disk
most = resource.RLIM_INFINITY
for path in map(Path, sys.argv[2:]):
    index = cfe.read_index(path)
    for limit in range(1, path.stat().st_size, int(sys.argv[1])):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, most))
        try:
            cfe.write_index(index, path if limit % 2 else path.with_suffix(".new"))
            print("written")
        except OSError:
            pass
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
"""


@pytest.mark.parametrize("step", [997, pytest.param(97, marks=pytest.mark.slow)])
def test_a_disk_that_is_full_at_any_byte_is_an_oserror(step: int, tmp_path: Path) -> None:
    paths = [tmp_path / f"{kind}.index" for kind in ("flat", "ivf")]
    for path in paths:
        cfe.write_index(built(path.stem), path)
    before = [path.read_bytes() for path in paths]
    assert output_of(FULL, step, *paths) == ""
    assert [path.read_bytes() for path in paths] == before
    assert sorted(tmp_path.iterdir()) == paths


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for read in (cfe.read_index, cfe.verify_index, read_header):
        with pytest.raises(ValueError, match="pipe must be a regular file"):
            read(tmp_path / "pipe")


@pytest.mark.parametrize("kind", KINDS)
def test_merging_from_a_mapped_index_is_refused_before_rows_move(kind: str, path: Path) -> None:
    cfe.write_index(built(kind), path)
    mapped = cfe.read_index(path, faiss.IO_FLAG_MMAP)
    target = cfe.IndexEvidenceIDMap2(12)
    with pytest.raises(RuntimeError, match="mapped"):
        target.merge_from(mapped)
    assert (target.ntotal, mapped.ntotal) == (0, 600)
