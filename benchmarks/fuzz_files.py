"""Does a damaged or forged index file ever crash the reader, hang it, or make it give wrong results?

Small files of each kind are mutated at random and read, into memory and mapped, in child processes that tell which case
they are at before they try it, so that a case that kills or stalls its process is known. Two sorts of mutations:

damage   bits, bytes and blocks are changed, cut out, put in, exchanged with another file; checksums stay as they are.
         A file that is accepted has to give the results of the whole file; mapped, where vectors and ids are not
         checked, ``verify_index`` has to refuse it otherwise.
forgery  a field of the header, a section or the payload is changed and every checksum computed anew. A file that is
         accepted has to be searchable, with results that are ids of the index.

    python benchmarks/fuzz_files.py [cases] [seed]
"""

import json
import resource
import struct
import subprocess
import sys
import tempfile
import time
import warnings
import zlib
from collections import Counter
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, cast

import faiss
import numpy as np
from common import save, table

import cfe_faiss as cfe
from cfe_faiss.files.format import verify_index
from cfe_faiss.files.layout import Payload, read_payload

TITLE = "Damaged files"

DESCRIPTIONS = {
    "flat": "IDMap2,EvidenceFlat",
    "positions": "EvidenceFlat",
    "ivf": "EvidenceIVF5,Flat",
    "partitions": "EvidenceIVF5x3,Flat",
    "untrained": "EvidenceIVF5,Flat",
    "direct_map": "EvidenceIVF5,Flat",
    "fp16": "EvidenceIVF5,SQfp16",
    "sq8": "EvidenceIVF5x2,SQ8",
    "pq": "EvidenceIVF5x2,PQ3,RFlat",
    "untrained_sq8": "EvidenceIVF5,SQ8",
    "untrained_pq": "EvidenceIVF5,PQ3,RFlat",
}
KINDS = tuple(DESCRIPTIONS)
BATCH = 1000
SECONDS = 600
MEMORY = 4 << 30
TRAILER = struct.Struct("<QQI4s")
NUMBERS = (0, 1, 2, 3, 7, 63, 64, 255, *(2**31 + i for i in (-1, 0)), 2**32, 2**40, 2**62)
NUMBERS += (2**63 - 1, 2**63, 2**64 - 1)
WORDS = ("", "labels", "references", "vectors", "<f4", "<i4", "<i8", "|O", "<U9", "EvidenceIVF")
WORDS += ("EvidenceFlat", "EvidenceIDMap2", "EvidenceIVFScalarQuantizer", "EvidenceIVFPQ")
OTHERS: tuple[Any, ...] = (0.5, 1e300, float("nan"), float("inf"), [], [0], [-1], [2**40, 2**40])
OTHERS += ([[1]], [1.5], {}, {"name": "labels"}, None, True, False)
VALUES = (*NUMBERS, *(-number for number in NUMBERS), *WORDS, *OTHERS)


def index(kind: str) -> Any:
    rng = np.random.default_rng(5)
    X, labels = rng.standard_normal((160, 6), np.float32), rng.integers(0, 3, 160)
    ids = rng.permutation(1000)[:160]
    made: Any = cfe.index_factory(6, DESCRIPTIONS[kind])
    if made.has_lists:
        made.nprobe = 3
    if kind.startswith("untrained"):
        return made
    if not made.is_trained:
        made.train(np.concatenate([X, -X]))
    if kind == "positions":
        made.add_with_labels(X, labels)
        return made
    if kind == "direct_map":
        ids = np.arange(160)
    made.add_with_labels(X[:140], labels[:140], ids[:140])
    made.add_with_ids(X[140:], ids[140:])
    if kind == "direct_map":
        made.make_direct_map()
    return made


def results(found: Any) -> list[np.ndarray]:
    """Search an index in every way that touches what a file holds."""
    xq = np.random.default_rng(6).standard_normal((8, 6)).astype(np.float32)
    labels = np.arange(8) % 4
    stock = found.search(xq, 5) if found.is_trained else ()
    return [
        *stock,
        *found.search_evidence(xq, labels, 5),
        *found.search_stored(k=4),
        *found.range_search_evidence(xq, labels, 0.3),
        found.members().ids,
        found.members().labels,
    ]


def same(one: list[np.ndarray], two: list[np.ndarray]) -> bool:
    return len(one) == len(two) and all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))


# --- mutations --------------------------------------------------------------------------------------------------------


def damaged(whole: bytes, other: bytes, rng: np.random.Generator) -> bytes:
    data = bytearray(whole)
    a, b = sorted(rng.integers(0, len(data), 2).tolist())
    b = min(b, a + int(rng.choice([1, 8, 64, 4096])))
    match rng.integers(8):
        case 0:
            data[a] ^= 1 << rng.integers(8)
        case 1:  # near the end, where the footer is
            data[-1 - int(rng.integers(min(1200, len(data))))] ^= 1 << rng.integers(8)
        case 2:  # near the start, where the structure is
            data[int(rng.integers(300))] = rng.integers(256)
        case 3:
            data = data[:a]
        case 4:
            data[a:b] = b""
        case 5:
            data[a:a] = rng.bytes(b - a)
        case 6:
            data[a:b] = bytes(b - a) if rng.random() < 0.5 else rng.bytes(b - a)
        case 7:
            data[a:] = other[a:] if rng.random() < 0.5 else other[int(rng.integers(len(other))) :]
    return bytes(data)


def forged(whole: bytes, other: bytes, rng: np.random.Generator) -> bytes:
    start, length, _, magic = TRAILER.unpack(whole[-TRAILER.size :])
    body, header = bytearray(whole[:start]), json.loads(whole[start : start + length])
    size = header["payload"]["size"]
    match rng.integers(5):
        case 0:
            forge_field(header, rng)
        case 1:  # the payload's numbers
            place = int(rng.integers(min(size - 8, 400)))
            body[place : place + 8] = struct.pack(
                "<Q", int(rng.choice(np.array(NUMBERS, np.uint64)))
            )
        case 2:
            body[int(rng.integers(size))] ^= 1 << rng.integers(8)
        case 3:
            section = header["sections"][rng.integers(len(header["sections"]))]
            item = np.dtype(section["dtype"]).itemsize
            count = int(np.prod(section["shape"]))
            if count:
                place = section["offset"] + item * int(rng.integers(count))
                number = int(rng.choice([-2, -1, 0, 1, 5, 159, 160, 2**31 - 1])) % 256**item
                body[place : place + item] = number.to_bytes(item, "little")
        case 4:  # the payload of another index
            header["payload"] = json.loads(other[slice(*header_place(other))])["payload"]
            body[: header["payload"]["size"]] = other[: header["payload"]["size"]]
    renew_checksums(body, header)
    encoded = json.dumps(header).encode()
    return bytes(body) + encoded + TRAILER.pack(len(body), len(encoded), zlib.crc32(encoded), magic)


def header_place(whole: bytes) -> tuple[int, int]:
    start, length, _, _ = TRAILER.unpack(whole[-TRAILER.size :])
    return start, start + length


def forge_field(header: Any, rng: np.random.Generator) -> None:
    """Change, drop or double one value somewhere in the header."""
    place = header
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = keys[rng.integers(len(keys))]
        if not isinstance(place[key], dict | list) or not place[key] or rng.random() < 0.15:
            break
        place = place[key]
    match rng.integers(8):
        case 0:
            del place[key]
        case 1 if isinstance(place, list):
            place.append(place[key])
        case _:
            place[key] = VALUES[rng.integers(len(VALUES))]


def renew_checksums(body: bytearray, header: Any) -> None:
    """Make the checksums right as far as the header still says of what."""
    renew_list_checksums(body, header)
    sections = header.get("sections")
    for section in sections if isinstance(sections, list) else []:
        try:
            size = int(np.prod(section["shape"])) * np.dtype(section["dtype"]).itemsize
            if 0 <= size <= len(body) and section["offset"] >= 0 and "crc32" in section:
                section["crc32"] = zlib.crc32(body[section["offset"] : section["offset"] + size])
        except (TypeError, ValueError, KeyError, AttributeError, OverflowError):
            continue
    payload = header.get("payload")
    if (
        isinstance(payload, dict)
        and type(payload.get("size")) is int
        and 0 <= payload["size"] <= len(body)
    ):
        payload["crc32"] = zlib.crc32(body[: payload["size"]])
        made = structure(body, header)
        if made is not None:
            payload["structure_crc32"] = zlib.crc32(body[: made.start])


def renew_list_checksums(body: bytearray, header: Any) -> None:
    all_sections = header.get("sections")
    if not isinstance(all_sections, list):
        return
    sections = {name: section for section in all_sections if (name := named(section))}
    payload = structure(body, header)
    if payload is None or "list_checksums" not in sections:
        return
    place, vectors, sums = payload.start, sections.get("vectors", {}).get("offset"), []
    code_size = (header["payload"]["size"] - place) // max(payload.ntotal, 1) - 8
    for size in payload.sizes.tolist():
        sum_of_codes = 0
        if isinstance(vectors, int) and vectors >= 0:
            sum_of_codes = zlib.crc32(body[vectors : vectors + 4 * payload.d * size])
            vectors += 4 * payload.d * size
        sums.append(zlib.crc32(body[place : place + code_size * size], sum_of_codes))
        place += code_size * size
        sums.append(zlib.crc32(body[place : place + 8 * size]))
        place += 8 * size
    data, offset = np.array(sums, "<u4").tobytes(), sections["list_checksums"].get("offset")
    if type(offset) is int and 0 <= offset <= len(body) - len(data):
        body[offset : offset + len(data)] = data


def named(section: Any) -> str | None:
    name = section.get("name") if isinstance(section, dict) else None
    return name if isinstance(name, str) else None


def structure(body: bytearray, header: Any) -> Payload | None:
    try:
        metric = header["parameters"].get("metric")
        return read_payload(
            header.get("kind"), cast(BinaryIO, BytesIO(body)), header["payload"]["size"], metric
        )
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
    ):  # the last three: its kind was changed
        return None


# --- one process ------------------------------------------------------------------------------------------------------


def case_of(number: int, seed: int, files: dict[str, bytes]) -> tuple[str, str, bytes, int]:
    """Return kind, sort, contents and IO flags of a case."""
    rng = np.random.default_rng([seed, number])
    kind, other = (str(name) for name in rng.choice(KINDS, 2))
    sort = "damage" if rng.random() < 0.5 else "forgery"
    mutate = damaged if sort == "damage" else forged
    return (
        kind,
        sort,
        mutate(files[kind], files[other], rng),
        faiss.IO_FLAG_MMAP if rng.random() < 0.5 else 0,
    )


def outcome(path: Path, sort: str, flags: int, expected: list[np.ndarray]) -> str:
    try:
        found = cfe.read_index(path, flags)
        got = results(found)
    except ValueError as error:
        return (
            "clean error" if str(path) in str(error) else f"WRONG: error without the file: {error}"
        )
    except MemoryError as error:
        return f"WRONG: huge allocation: {error}"
    except Exception as error:
        return f"WRONG: {type(error).__name__}: {error}"
    if same(got, expected):
        return "same results"
    try:
        verify_index(path)
    except ValueError:
        # Mapped files are searched without a look at all their vectors, codes and ids.
        return (
            "mapped, refused by verify_index"
            if flags
            else "WRONG: verify_index refuses what read_index accepts"
        )
    if sort == "damage":
        return "WRONG: other results"
    *_, I, _, members_I, _, _, range_I, ids, _ = got
    stray = np.setdiff1d(np.concatenate([I, members_I, range_I], axis=None), [*ids, -1])
    return "WRONG: unknown ids" if len(stray) else "forged file that is sound"


def child(folder: Path, first: int, last: int, seed: int) -> None:
    faiss.omp_set_num_threads(1)
    warnings.simplefilter("ignore")  # sums of what damaged vectors hold
    files = {kind: (folder / f"{kind}.index").read_bytes() for kind in KINDS}
    expected = {kind: results(cfe.read_index(folder / f"{kind}.index")) for kind in KINDS}
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    path = folder / f"case-{first}.index"
    whole = {
        data: kind for kind, data in files.items()
    }  # a cut of one file into another may give the other one
    for number in range(first, last):
        print(number, flush=True)
        kind, sort, data, flags = case_of(number, seed, files)
        path.write_bytes(data)
        result = outcome(path, sort, flags, expected[whole.get(data, kind)])
        print(f"{sort}, {'mapped' if flags else 'in memory'}: {result}", flush=True)


# --- all of them ------------------------------------------------------------------------------------------------------


def fuzz(cases: int, seed: int) -> dict[str, int]:
    with tempfile.TemporaryDirectory() as name:
        for kind in KINDS:
            cfe.write_index(index(kind), Path(name) / f"{kind}.index")
        return counted(__file__, Path(name), cases, seed)


def counted(script: str, folder: Path, cases: int, seed: int) -> dict[str, int]:
    """Return how many cases came out in which way; those that begin with WRONG, or crash or hang, must not occur.

    ``script --child FOLDER FIRST LAST SEED`` prints, of each case, its number and then how it came out.
    """
    counts: Counter[str] = Counter()
    first = 0
    while first < cases:
        last = min(first + BATCH, cases)
        command = [sys.executable, script, "--child", str(folder), str(first), str(last), str(seed)]
        ended = "crash"
        try:
            done = subprocess.run(
                command, stdout=subprocess.PIPE, text=True, timeout=SECONDS, check=False
            )
            output, finished = done.stdout, done.returncode == 0
        except subprocess.TimeoutExpired as expired:
            output, finished, ended = (expired.stdout or b"").decode(), False, "hang"
        lines = output.splitlines()
        counts.update(lines[1::2])
        for number, line in zip(lines[::2], lines[1::2], strict=False):
            if "WRONG" in line:
                print(f"case {number}, seed {seed}: {line}")
        if not finished:
            if not lines:
                raise RuntimeError("the child process did not begin")
            print(f"case {lines[-1]}, seed {seed}: {ended}")
            counts[f"WRONG: {ended}"] += 1
            last = first + (len(lines) + 1) // 2
        first = last
    return dict(sorted(counts.items()))


def outcomes(content: dict[str, Any], noun: str) -> str:
    rows = [(outcome, f"{count:,}") for outcome, count in content["counts"].items()]
    return table(("outcome", noun), rows)


def page(content: dict[str, Any]) -> str:
    return (
        f"{content['cases']:,} mutated index files given to the reader in processes whose crash would be noticed; "
        f"crashes, hangs and wrong results: {content['wrong']}.\n\n{outcomes(content, 'files')}"
    )


def main(
    name: str, fuzz: Callable[[int, int], dict[str, int]], enough: int, child: Callable[..., None]
) -> None:
    """Run all cases, or as a child process some of them; the result of ``enough`` or more is kept."""
    if sys.argv[1:2] == ["--child"]:
        child(Path(sys.argv[2]), *(int(argument) for argument in sys.argv[3:]))
        return
    cases, seed = ([int(argument) for argument in sys.argv[1:]] + [enough, 0][len(sys.argv) - 1 :])[
        :2
    ]
    start = time.perf_counter()
    counts = fuzz(cases, seed)
    wrong = sum(count for name, count in counts.items() if "WRONG" in name)
    result = {
        "cases": cases,
        "seed": seed,
        "seconds": time.perf_counter() - start,
        "counts": counts,
        "wrong": wrong,
    }
    print(json.dumps(result, indent=2))
    if cases >= enough:
        print(f"written to {save(name, result)}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main("fuzz_files", fuzz, 10_000, child)
