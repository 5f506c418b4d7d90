"""Does a damaged shard ever give another result without an error, crash the reader or hang it?

A small index in four shards is damaged at random: bits, bytes and blocks of one of its files, ``shards.json`` among
them, are changed, cut out, put in, or exchanged with another file's. It is opened in a child process and searched in
every way that reads a list. Either something raises, or all results are those of the whole index.

    python benchmarks/fuzz_shards.py [cases] [seed]
"""

import shutil
import tempfile
import warnings
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from fuzz_files import counted, damaged, main, outcomes, same

import cfe_faiss as cfe
from cfe_faiss.scale import ShardedEvidenceIndex, write_shards

TITLE = "Damaged shards"

N, D, NLIST, SHARDS = 600, 6, 24, 4


def original() -> cfe.IndexEvidenceIVF:
    rng = np.random.default_rng(5)
    X, labels = rng.standard_normal((N, D), np.float32), rng.integers(0, 3, N)
    index = cfe.IndexEvidenceIVF(D, NLIST)
    index.train(X)
    index.add_with_labels(X, labels, rng.permutation(10 * N)[:N])
    return index


def results(index: ShardedEvidenceIndex, order: int) -> list[np.ndarray]:
    """Search an index in every way, and begin with another one in each case: who reads a list first checks it."""
    xq = np.random.default_rng(6).standard_normal((8, D)).astype(np.float32)
    labels, all_lists = np.arange(8) % 4, faiss.SearchParametersIVF(nprobe=NLIST)
    searches = [
        lambda: index.search_evidence(xq[:1], labels[:1], 5, nprobe=NLIST),
        lambda: index.search_evidence(xq, labels, 5, nprobe=3),
        lambda: index.search_stored(k=4, nprobe=2),
        lambda: index.search_stored(k=4, exact=True),
        lambda: index.search_certified(k=3, nprobe=4),
        lambda: index.search(xq, 5),
        lambda: index.search(xq, 5, params=all_lists),
        lambda: index.range_search(xq, 0.5),
        lambda: index.range_search_evidence(xq, labels, 0.3),
        lambda: index.search_shard(1, 3, 4),
        lambda: (index.members().ids, index.members().labels),
        lambda: (index.reconstruct_batch(index.members().ids),),
        lambda: index.to_stock().search(xq, 5, params=all_lists),
        lambda: (cfe.global_evidence(index, 20).source, cfe.global_evidence(index, 20).similarity),
    ]
    found = {}
    for step in range(len(searches)):
        number = (step + order) % len(searches)
        found[number] = searches[number]()
    return [array for number in sorted(found) for array in found[number]]


def case_of(number: int, seed: int, files: dict[str, bytes]) -> tuple[str, bytes]:
    """Return the name of the file that a case damages, and its contents then."""
    rng = np.random.default_rng([seed, number])
    name, other = (str(one) for one in rng.choice(sorted(files), 2))
    if (
        rng.random() < 0.5
    ):  # most bytes are vectors and ids, and there is nothing else to notice damage there
        data = bytearray(files[name])
        data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
        return name, bytes(data)
    return name, damaged(files[name], files[other], rng)


def outcome(folder: Path, order: int, expected: list[np.ndarray]) -> str:
    try:
        found = results(ShardedEvidenceIndex.open(folder), order)
    except FileNotFoundError:
        return "clean error: no such file"
    except ValueError as error:
        return (
            "clean error"
            if folder.name in str(error)
            else f"WRONG: error without the file: {error}"
        )
    except Exception as error:
        return f"WRONG: {type(error).__name__}: {error}"
    return "same results" if same(found, expected) else "WRONG: other results"


def child(folder: Path, first: int, last: int, seed: int) -> None:
    faiss.omp_set_num_threads(1)
    warnings.simplefilter("ignore")
    whole = folder / "whole"
    files = {path.name: path.read_bytes() for path in whole.iterdir()}
    expected = results(ShardedEvidenceIndex.open(whole), 0)
    place = folder / f"case-{first}"
    shutil.copytree(whole, place)
    for number in range(first, last):
        print(number, flush=True)
        name, data = case_of(number, seed, files)
        (place / name).write_bytes(data)
        print(
            f"{'list of shards' if name.endswith('json') else 'shard'}: {outcome(place, number, expected)}",
            flush=True,
        )
        (place / name).unlink()  # who has the old one mapped keeps it
        (place / name).write_bytes(files[name])


def fuzz(cases: int, seed: int) -> dict[str, int]:
    with tempfile.TemporaryDirectory() as name:
        write_shards(original(), Path(name) / "whole", SHARDS)
        return counted(__file__, Path(name), cases, seed)


def page(content: dict[str, Any]) -> str:
    return (
        f"{content['cases']:,} times one file of an index in shards was damaged, the list of shards among them, and "
        "the index opened and searched in every way that reads a list; crashes, hangs, and other results without an "
        f"error: {content['wrong']}.\n\n{outcomes(content, 'cases')}"
    )


if __name__ == "__main__":
    main("fuzz_shards", fuzz, 2_500, child)
