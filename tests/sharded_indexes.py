"""A small index in memory and the same one in shards, and what tests of changes ask of both."""

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from reference import assert_same_arrays, clustered

import cfe_faiss as cfe
from cfe_faiss.scale import ShardedEvidenceIndex, write_shards

D, NLIST, CLASSES, SHARDS = 6, 12, 3, 3
X, LABELS = clustered(400, D, CLASSES)
TRAINED = cfe.IndexEvidenceIVF(D, NLIST)
TRAINED.train(X)
LISTS = TRAINED.quantizer.search(X, 1)[1][:, 0]
FIRST = np.flatnonzero(LISTS < 5)[:40]  # so that most lists are in no shard at first


@cache
def first_shards() -> Path:
    """Return the folder of an index that holds the first vectors, in shards and in one file; written once."""
    folder = Path(tempfile.mkdtemp(prefix="cfe-shards-"))
    atexit.register(shutil.rmtree, folder)
    index: Any = cfe.clone_index(TRAINED)
    index.add_with_labels(X[FIRST], LABELS[FIRST])
    write_shards(index, folder / "shards", SHARDS)
    cfe.write_index(index, folder / "one.index")
    return folder


def started(folder: Path) -> tuple[cfe.IndexEvidenceIVF, ShardedEvidenceIndex]:
    """Return an index in memory that holds the first vectors, and the same one in shards."""
    index: Any = cfe.read_index(first_shards() / "one.index")
    shutil.copytree(first_shards() / "shards", folder, dirs_exist_ok=True)
    return index, ShardedEvidenceIndex.open(folder)


def results(index: Any, X: Any = X, labels: Any = LABELS) -> list[Any]:
    """Return what searches of every kind find."""
    known = index.members()
    found = [index.ntotal, known.ids, known.labels, index.reconstruct_batch(known.ids)]
    found += [*index.range_search_evidence(X[:9], labels[:9], 0.7), *index.search(X[:9], 3)]
    if not index.ntotal:
        return found
    new = X + np.float32(0.01)
    for how in ({"nprobe": 2}, {"nprobe": 5}, {"exact": True}, {"recall": 0.9}, {}):
        found += index.search_stored(k=4, **how)
        for nq in (1, 20, 300):
            found += index.search_evidence(new[:nq], labels[:nq], 4, **how)
    excluded = [known.ids[:5]] * len(known.ids)
    for rules in (
        {"neighbors": "any"},
        {"neighbors": "own", "within": (0.1, 0.9)},
        {"exclude": excluded},
        {"exclude_labels": [[known.labels.max()]] * len(known.ids)},
        {"sel": known.ids[::2]},
    ):
        for how in ({"exact": True}, {"nprobe": 2}):
            found += index.search_stored(k=4, **rules, **how)
    pairs = cfe.global_evidence(index, 15)
    found += [pairs.source, pairs.target, pairs.similarity]
    found += index.search_per_label(new[:9], labels[:9], 2)
    return [*found, *index.search_certified(k=3, nprobe=4)]


def assert_same(index: Any, *sharded: Any, X: Any = X, labels: Any = LABELS) -> None:
    """Check that indexes in shards have the results of an index in memory."""
    expected = results(index, X, labels)
    for one in sharded:
        assert_same_arrays(results(one, X, labels), expected)


def assert_tidy(folder: Path, sharded: ShardedEvidenceIndex) -> None:
    """Check that the folder holds only the ordinary index files of the shards."""
    paths = sorted(folder.glob("shard-*.index"))
    assert sorted(folder.iterdir()) == [*paths, folder / "shards.json"]
    assert len(paths) == len(sharded.shards)
    assert sum(faiss.read_index(str(path)).ntotal for path in paths) == sharded.ntotal
    for path in paths:
        cfe.verify_index(path)
