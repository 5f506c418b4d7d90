"""Exact answers keep their bits over versions and instruction sets.

`digests.json` was written by `python tests/search/test_digests.py FILE` at commit cbdacc00. For "l2" and "ip" it covers
ids and scores; for "cosine", whose last bits were corrected later, it covers ids and scores rounded to six places.
"""

import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference import with_rows

import cfe_faiss as cfe

FILE = Path(__file__).with_name("digests.json")
N, DIM, CLASSES = 600, 21, 5
KINDS = (
    "EvidenceFlat",
    "EvidenceIVF9,Flat",
    "EvidenceIVF9,SQ8",
    "EvidenceIVF9,SQfp16",
    "EvidenceIVF9,PQ7,RFlat",
)
METRICS = ("cosine", "ip", "l2")
QUERIES = (1, 3, 70)
IDS = np.arange(0, 70) * 7

# The streams of RandomState never change.
random = np.random.RandomState(41)
CENTERS = random.standard_normal((12, DIM))
X = (CENTERS[np.arange(N) % 12] + 0.4 * random.standard_normal((N, DIM))).astype(np.float32)
X *= random.lognormal(sigma=0.3, size=(N, 1)).astype(np.float32)
LABELS = np.where(np.arange(N) % 31 == 0, -1, random.randint(0, CLASSES, N))
XQ = (CENTERS[np.arange(70) % 12] + 0.4 * random.standard_normal((70, DIM))).astype(np.float32)
LABELS_Q = random.randint(0, CLASSES + 1, 70)
EXCLUDED_IDS = random.randint(-1, N, (N, 6))
EXCLUDED_LABELS = random.randint(-1, CLASSES, (N, 2))
SELECTED = random.random_sample(N) < 0.4
RANGES = {"cosine": (0.3, 0.9), "ip": (5.0, 25.0), "l2": (8.0, 30.0)}
THRESHOLDS = {"cosine": 0.8, "ip": 20.0, "l2": 10.0}


def rules_of(metric: str, nq: int) -> dict[str, dict[str, Any]]:
    """Return named options of a search for the first queries."""
    within = RANGES[metric]
    return {
        "none": {},
        "sel": {"sel": SELECTED},
        "exclude": {"exclude": EXCLUDED_IDS[:nq]},
        "exclude_labels": {"exclude_labels": EXCLUDED_LABELS[:nq]},
        "within": {"within": within},
        "own": {"neighbors": "own"},
        "any": {"neighbors": "any"},
        "own within": {"neighbors": "own", "within": within, "exclude": EXCLUDED_IDS[:nq]},
        "all": {
            "sel": SELECTED,
            "exclude": EXCLUDED_IDS[:nq],
            "exclude_labels": EXCLUDED_LABELS[:nq],
            "within": within,
        },
    }


def make_index(kind: str, metric: Any) -> Any:
    return with_rows(cfe.index_factory(DIM, kind, metric), X, LABELS)


def answers(index: Any, rule: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the name and a call of every exact entry for one rule."""
    metric = index.metric
    exact = {"exact": True} if index.has_lists else {}
    for nq in QUERIES:
        options = rules_of(metric, nq)[rule]
        xq, labels_q, ids = XQ[:nq], LABELS_Q[:nq], IDS[:nq]
        yield (
            f"search {nq}",
            lambda o=options, x=xq, y=labels_q: index.search_evidence(x, y, 9, **exact, **o),
        )
        yield f"stored {nq}", lambda o=options, ids=ids: index.search_stored(ids, 9, **exact, **o)
        yield (
            f"range {nq}",
            lambda o=options, x=xq, y=labels_q: index.range_search_evidence(
                x, y, THRESHOLDS[metric], **o
            ),
        )
    options = rules_of(metric, N)[rule]
    yield "all stored", lambda: index.search_stored(None, 9, **exact, **options)
    if rule == "none":
        yield "per label", lambda: index.search_per_label(XQ, LABELS_Q, 4, **exact)
        yield "certified", lambda: index.search_certified(None, 9, **exact)
        yield "pairs", lambda: pairs_of(cfe.global_evidence(index, 50, exact=True))


def pairs_of(pairs: Any) -> tuple[Any, ...]:
    return pairs.similarity, pairs.source, pairs.target


def digest(index: Any, rule: str) -> str:
    """Return a digest of all exact answers under a rule."""
    total = hashlib.sha256()
    for name, answer in answers(index, rule):
        total.update(name.encode())
        for array in answer():
            values = np.asarray(array)
            if values.dtype == np.float32 and index.metric == "cosine":
                values = values.astype(np.float64).round(6) + 0.0
            total.update(np.ascontiguousarray(values).tobytes())
    return total.hexdigest()[:16]


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", KINDS)
def test_exact_answers_keep_their_bits(kind: str, metric: str) -> None:
    index = make_index(kind, metric)
    recorded = json.loads(FILE.read_text())
    differing = [
        rule
        for rule in rules_of(metric, 1)
        if digest(index, rule) != recorded[f"{kind} {metric} {rule}"]
    ]
    assert differing == []


def record(path: Path) -> None:
    """Write the digests of this version."""
    digests = {}
    for kind in KINDS:
        for metric in METRICS:
            index = make_index(kind, metric)
            for rule in rules_of(metric, 1):
                digests[f"{kind} {metric} {rule}"] = digest(index, rule)
    path.write_text(json.dumps(digests, indent=0) + "\n")


if __name__ == "__main__":
    record(Path(sys.argv[1]))
