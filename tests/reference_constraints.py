"""Constraints one pair at a time: what searches under constraints are held against."""

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from hypothesis import strategies as st
from numpy.typing import NDArray
from reference import PADDING, Stored, similarities, stored_vectors

import cfe_faiss as cfe

Column = list[Any]


class Case(NamedTuple):
    """Stored vectors, the attributes of each (None where missing), edges, and constraints."""

    stored: Stored
    table: dict[str, Column]
    edges: NDArray[np.int64]
    where: dict[str, Any]

    @property
    def frame(self) -> pd.DataFrame:
        columns = {
            name: pd.Series(values, dtype="str" if name in TEXTS else "float64")
            for name, values in self.table.items()
        }
        return pd.DataFrame(columns).set_index(pd.Index(self.stored.ids))

    @property
    def given(self) -> dict[str, Any]:
        """Return what searches take."""
        graph = {"graph": self.edges} if self.edges.size else {}
        return {"where": cfe.Constraints(**self.where), "attributes": self.frame, **graph}


TEXTS, NUMBERS = ("sex", "town"), ("age", "income")


def distances(n: int, edges: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the number of hops between all nodes, by Floyd and Warshall."""
    hops = np.full((n, n), np.inf)
    hops[edges[0], edges[1]] = hops[edges[1], edges[0]] = 1
    np.fill_diagonal(hops, 0)
    for v in range(n):
        hops = np.minimum(hops, hops[:, v, None] + hops[None, v])
    return hops


def deviation(values: Column) -> float:
    return float(np.std([value for value in values if value is not None], ddof=1))


def far_enough(apart: float, limit: float) -> bool:
    return apart >= -limit if limit < 0 else apart <= limit


def is_evidence(case: Case, b: int) -> bool:
    """Return whether row b meets the conditions on the evidence alone."""
    where = case.where
    for name, values in where.get("permitted", {}).items():
        value = case.table[name][b]
        if value is None:
            return False
        inside = values[0] <= value <= values[1] if isinstance(values, tuple) else value in values
        if not inside:
            return False
    target = where.get("target")
    return target is None or case.stored.labels[b] in target


def calipers(case: Case) -> list[tuple[str, float]]:
    """Return the attributes with a caliper, and its width in their own unit."""
    scaled = case.where.get("std_caliper", {})
    widths = [(name, limit * deviation(case.table[name])) for name, limit in scaled.items()]
    return [*case.where.get("caliper", {}).items(), *widths]


def is_allowed(
    case: Case, a: int, b: int, hops: NDArray[np.float64], limits: list[tuple[str, float]]
) -> bool:
    """Return whether rows a and b meet the conditions that have no direction."""
    where, table, labels = case.where, case.table, case.stored.labels
    if labels[a] == labels[b] or min(labels[a], labels[b]) < 0:
        return False
    named = [*where.get("exact", []), *where.get("antiexact", []), *(name for name, _ in limits)]
    if any(table[name][row] is None for name in named for row in (a, b)):
        return False
    if any(table[name][a] != table[name][b] for name in where.get("exact", [])):
        return False
    if any(table[name][a] == table[name][b] for name in where.get("antiexact", [])):
        return False
    if not all(far_enough(abs(table[name][a] - table[name][b]), limit) for name, limit in limits):
        return False
    if where.get("max_changed") is not None:
        changed = sum(
            values[a] is None or values[b] is None or values[a] != values[b]
            for values in table.values()
        )
        if changed > where["max_changed"]:
            return False
    ids = case.stored.ids
    if where.get("min_hops") and hops[ids[a], ids[b]] < where["min_hops"]:
        return False
    return (
        where.get("common_neighbors", True) or not ((hops[ids[a]] == 1) & (hops[ids[b]] == 1)).any()
    )


def allowed_pairs(case: Case) -> NDArray[np.bool_]:
    """Return which pairs of rows meet all conditions, the second as the evidence: (n, n)."""
    n = len(case.stored.ids)
    nodes = int(max(case.stored.ids, default=0)) + 1 if case.edges.size else 1
    hops, limits = distances(nodes, case.edges), calipers(case)
    allowed = np.zeros((n, n), bool)
    for b in filter(partial(is_evidence, case), range(n)):
        allowed[:, b] = [is_allowed(case, a, b, hops, limits) for a in range(n)]
    return allowed


def uses(case: Case) -> int | None:
    return case.where.get("ratio") if case.where.get("replace", True) else 1


def ranked_pairs(case: Case) -> list[tuple[int, int, np.float32]]:
    """Return all pairs of ids under the constraints, best first, ties by ids; each node as often as it may be."""
    allowed, ids = allowed_pairs(case), case.stored.ids.tolist()
    S = similarities(case.stored.X, case.stored.X)
    pairs = [
        (min(ids[i], ids[j]), max(ids[i], ids[j]), S[i, j])
        for i in range(len(ids))
        for j in range(i)
        if allowed[i, j] or allowed[j, i]
    ]
    pairs.sort(key=lambda pair: (-pair[2], pair[0], pair[1]))
    left = dict.fromkeys(ids, uses(case) or len(ids))
    chosen = []
    for pair in pairs:
        if left[pair[0]] and left[pair[1]]:
            left[pair[0]] -= 1
            left[pair[1]] -= 1
            chosen.append(pair)
    return chosen


def best_rows(
    case: Case, asked: NDArray[np.int64], k: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return the evidence D, I of some rows under the constraints; evidence as often as it may be."""
    allowed, ids = allowed_pairs(case), case.stored.ids
    S = similarities(case.stored.X, case.stored.X)
    pairs = [
        (-S[row, b], q, ids[b]) for q, row in enumerate(asked) for b in np.flatnonzero(allowed[row])
    ]
    left = dict.fromkeys(ids.tolist(), uses(case) or len(asked))
    D, I = np.full((len(asked), k), PADDING, np.float32), np.full((len(asked), k), -1, np.int64)
    taken = np.zeros(len(asked), int)
    for negative, q, b in sorted(pairs):
        if left[b] and taken[q] < k:
            left[b] -= 1
            D[q, taken[q]], I[q, taken[q]] = -negative, b
            taken[q] += 1
    return D, I


@st.composite
def cases(
    draw: st.DrawFn, *, graph: bool = True, reuse: bool = False, undirected: bool = False
) -> Case:
    """Draw vectors with ties, attributes with ties and missing values, a small graph and constraints that fit."""
    stored = draw(stored_vectors(least=12, lowest_label=-1, arbitrary_ids=not graph))
    n = len(stored.ids)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    missing = draw(st.sampled_from([0.0, 0.1]))
    columns = {
        "sex": rng.choice(["f", "m"], n),
        "town": rng.choice(["a", "b", "c", "d"], n),
        "age": rng.integers(0, 6, n).astype(float),
        "income": rng.integers(-3, 4, n) / 4,
    }
    table = {
        name: [None if rng.random() < missing else value for value in values.tolist()]
        for name, values in columns.items()
    }
    kinds = ["exact", "antiexact", "caliper", "std_caliper", "max_changed"]
    kinds += [] if undirected else ["permitted", "target"]
    kinds = draw(st.sets(st.sampled_from(kinds), max_size=3))
    where: dict[str, Any] = {}
    if "exact" in kinds:
        where["exact"] = sorted(draw(st.sets(st.sampled_from(["sex", "age"]), min_size=1)))
    if "antiexact" in kinds:
        where["antiexact"] = sorted(draw(st.sets(st.sampled_from(["town", "income"]), min_size=1)))
    if "caliper" in kinds and "age" not in where.get("exact", []):
        where["caliper"] = {"age": draw(st.sampled_from([0, 1, 2.5, -1, -3]))}
    varies = len({value for value in table["income"] if value is not None}) > 1
    if "std_caliper" in kinds and varies and "income" not in where.get("antiexact", []):
        where["std_caliper"] = {"income": draw(st.sampled_from([0.3, 1, -0.5]))}
    fewest, most = len(where.get("antiexact", [])), 3 - len(where.get("exact", []))
    if "max_changed" in kinds and fewest <= most:
        where["max_changed"] = draw(st.integers(fewest, most))
    if "permitted" in kinds:
        ages = draw(st.sampled_from([(1, 4), (3, 3)]))
        permitted = {"age": ages, "sex": ["f"], "income": {-0.25, 0.5, 9.0}}
        names = draw(
            st.sets(
                st.sampled_from(["age", "income", *["sex"] * ("f" in table["sex"])]), min_size=1
            )
        )
        where["permitted"] = {name: permitted[name] for name in names}
    known = sorted({int(label) for label in stored.labels if label >= 0})
    if "target" in kinds and known:
        where["target"] = sorted(draw(st.sets(st.sampled_from(known), min_size=1)))
    edges = np.empty((2, 0), np.int64)
    if graph:
        edges = rng.integers(0, n, (2, draw(st.integers(1, n))))
        edges[:, 0] = 0, n - 1
        far = {"min_hops": draw(st.integers(2, 5))}
        where |= draw(
            st.sampled_from(
                [{}, {}, far, {"common_neighbors": False}, {**far, "common_neighbors": False}]
            )
        )
    if reuse:
        where |= draw(
            st.sampled_from([{"replace": False}, {"ratio": 1}, {"ratio": 2}, {"ratio": 5}])
        )
    return Case(stored, table, edges, where)
