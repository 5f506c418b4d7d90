"""Vectors in groups, for searches of the nearest rows outside a query's group.

The name of a data set is ``groups-POSITION-SIZES-GROUPS-D-N``: N unit vectors with D components around clusters of
different size and width. POSITION is the percentage of rows whose group follows their position: at 100 each group is a
region, at 0 groups are drawn independently of the vectors. ``apartPERCENT`` is the percentage of rows that stand apart
from their group: at apart100 neighbours are of different groups. SIZES is equal or zipf. GROUPS is a number of groups
from 2 on, or half: N/2 groups, of two rows each if they are equal.
"""

from typing import Literal, NamedTuple, cast

import faiss
import numpy as np
from numpy.typing import NDArray

SEED = 0
_CLUSTERS = 100
_SPREAD = 0.35  # of a cluster beside the distance between clusters, on average
_NEIGHBORS = 20  # of a row that stands apart from its group
_WITHIN = 0.5  # spread of a pair beside that of its cluster


class Shape(NamedTuple):
    """A data set: see the module."""

    position: int
    sizes: Literal["equal", "zipf"]
    groups: int
    d: int
    n: int

    def __str__(self) -> str:
        follow = f"the group of {self.position} % of the rows follows their position"
        if self.position < 0:
            follow = f"{-self.position} % of the rows stand apart from their group"
        return f"synthetic: {self.groups:,} groups of {self.sizes} sizes, {follow}"


def parse(name: str) -> Shape:
    """Return the shape of a data set's name; ValueError for another one."""
    kind, *parts = name.split("-")
    if kind != "groups" or len(parts) != 5 or parts[1] not in ("equal", "zipf"):
        raise ValueError(f"the name must be groups-POSITION-(equal|zipf)-GROUPS-D-N, got {name!r}")
    position = int(parts[0].replace("apart", "-"))
    d, n = int(parts[3]), int(parts[4])
    groups = n // 2 if parts[2] == "half" else int(parts[2])
    if not (-100 <= position <= 100 and 2 <= groups <= n // 2 and d >= 2):
        raise ValueError(
            f"the name must have a percentage up to 100, 2 to n/2 groups and d >= 2, got {name!r}"
        )
    return Shape(position, cast(Literal["equal", "zipf"], parts[1]), groups, d, n)


def make(shape: Shape, seed: int = SEED) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return the vectors (n, d) and the groups (n,) of a data set, the same in every call."""
    rng = np.random.default_rng([seed, shape.d, shape.n])
    X, order = clustered(shape.n, shape.d, rng)
    if shape.position < 0:
        labels = apart(X, group_sizes(shape), rng)
    else:
        labels = np.empty(shape.n, np.int64)
        labels[order] = np.repeat(np.arange(shape.groups), group_sizes(shape))
    moved = rng.permutation(shape.n)[: round(shape.n * (100 - abs(shape.position)) / 100)]
    labels[moved] = labels[rng.permutation(moved)]
    return X, labels


def clustered(
    n: int, d: int, rng: np.random.Generator
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return unit vectors of pairs in clusters, and the rows (n,) in an order in which neighbours are near each other.

    The rows of a pair are nearer to each other than to most others of their cluster, as parts of one document are.
    """
    pairs = -(-n // 2)
    of_cluster = rng.choice(_CLUSTERS, pairs, p=rng.dirichlet(np.ones(_CLUSTERS)))
    spread = _SPREAD * rng.lognormal(0, 0.5, _CLUSTERS)
    centers = rng.normal(size=(_CLUSTERS, d))[of_cluster] + spread[of_cluster, None] * rng.normal(
        size=(pairs, d)
    )
    of_pair = rng.permutation(np.repeat(np.arange(pairs), 2)[:n])
    X = centers[of_pair] + _WITHIN * spread[of_cluster[of_pair], None] * rng.normal(size=(n, d))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    along = centers @ rng.normal(size=d)
    return X.astype(np.float32), np.lexsort((of_pair, along[of_pair], of_cluster[of_pair]))


def apart(
    X: NDArray[np.float32], sizes: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[np.int64]:
    """Return groups (n,) of these sizes: one row after the other gets that which is rarest among its neighbours."""
    near = faiss.knn(X, X, _NEIGHBORS + 1)[1][:, 1:]
    labels, room = np.full(len(X), len(sizes)), sizes.astype(float)
    for row in rng.permutation(len(X)):
        counts = np.bincount(labels[near[row]], minlength=len(sizes) + 1)[: len(sizes)]
        group = int(np.argmin(np.where(room > 0, counts - room / len(X), np.inf)))
        labels[row] = group
        room[group] -= 1
    return labels


def group_sizes(shape: Shape) -> NDArray[np.int64]:
    """Return the number of rows of each group, (groups,): at least 1 each, n together, the largest first."""
    weights = (
        np.ones(shape.groups) if shape.sizes == "equal" else 1 / np.arange(1, shape.groups + 1)
    )
    ends = np.cumsum(weights) / weights.sum() * (shape.n - shape.groups)
    return np.sort(1 + np.diff(np.round(ends).astype(np.int64), prepend=0))[::-1]
