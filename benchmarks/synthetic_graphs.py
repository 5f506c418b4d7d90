"""Random graphs of the shape of real ones, where their files are missing or another size is wanted.

The same arguments give the same graph on every machine. Nodes live in communities, communities in departments. Every
community has a home class, which more or fewer of its members have: that is the homophily. The pairs of a community are
joined at random, all equally likely. The other edges go to the same department, or anywhere, and prefer nodes that are
in demand, which gives the degrees a heavy tail.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.base.text import summary
from cfe_faiss.graph import Graph, as_graph

if TYPE_CHECKING:
    from torch_geometric.data import Data

_COMMUNITY = 800  # nodes, on average
_COMMUNITIES_PER_CLASS = 4  # at least: every class is home of some, and none has to be a large one
_DEPARTMENT = 50  # communities
_SPREAD = 0.5  # standard deviation of the logarithm of the communities' sizes
_INSIDE = 0.7  # share of the edges inside of communities, or the homophily, if that is more
_STRAY = 1 / 6  # share of the other edges that may go anywhere
_TAIL = 2.0  # of the Pareto law of the demand
_DENSITY = 0.25  # of edges in a community, at most, by default
_CLASS_DECAY = 0.7  # the i-th largest class is home of a share ~ i ** -0.7 of the communities

# Standard deviations of the parts of the features. As in an SVD, those of the i-th column are smaller, by i ** -_DECAY.
# Chosen so that at n = 20,000 an inverted file of 2 sqrt(n) lists finds neighbours among KS vectors about as easily as
# among those of the Facebook graph.
_PARTS = {"department": 1.0, "community": 0.7, "class": 0.3, "own": 1.0}
_DECAY = 0.7

# The own part of a feature is a sum of four numbers of 16 random bits each, which is nearly normal.
_SUM_DEVIATION = math.sqrt((2.0**32 - 1) / 3)

_AT_ONCE = 1 << 22  # pairs or numbers


@dataclass(frozen=True, eq=False)
class SyntheticGraph:
    """A random graph, undirected, with the classes 0..num_classes-1 that an imagined model predicts."""

    name: str
    x: NDArray[np.float32]
    graph: Graph
    labels: NDArray[np.int32]
    num_classes: int

    __repr__ = summary

    def to_data(self, seed: int = 0) -> "Data":
        """Return a PyG ``Data`` as that of :func:`cfe_faiss.datasets.load`, the labels as the true classes ``y``."""
        import torch
        from torch_geometric.data import Data

        from cfe_faiss.datasets.graphs import split_masks

        targets = np.repeat(np.arange(self.graph.num_nodes), np.diff(self.graph.indptr))
        x, y = torch.from_numpy(self.x), torch.from_numpy(self.labels.astype(np.int64))
        data = Data(
            x=x,
            edge_index=torch.from_numpy(np.stack([self.graph.indices.astype(np.int64), targets])),
            y=y,
        )
        data.x_raw, data.name = x, self.name
        data.feature_names = [f"feature {i}" for i in range(self.x.shape[1])]
        data.class_names = [f"class {c}" for c in range(self.num_classes)]
        data.train_mask, data.val_mask, data.test_mask = split_masks(y, seed)
        return data


def amazon_shape(
    n: int = 1_569_960, *, degree: float | None = None, homophily: float = 0.5, seed: int = 0
) -> SyntheticGraph:
    """Return a random graph of AmazonProducts' shape: 200 features, 107 classes of unequal sizes.

    Parameters
    ----------
    n
        Number of nodes, >= 856. At full size the graph takes 2.3 GB, and up to 3.4 GB while it is made.
    degree
        Mean degree. Default: that of AmazonProducts, 264,339,468 / 1,569,960 = 168.4, or less where n is small, since
        communities are then small, too: 12 at n = 20,000, 117 at n = 200,000.
    homophily
        In [0, 1]: by how much more than chance the edges join nodes of the same class (Newman's assortativity of the
        labels). What comes out differs by a few hundredths.
    """
    if degree is None:
        degree = min(264_339_468 / 1_569_960, _DENSITY * n / _num_communities(n, 107))
    return _community_graph("amazon-synthetic", n, degree, 200, 107, homophily, seed)


def pubmed_shape(*, homophily: float = 0.7, seed: int = 0) -> SyntheticGraph:
    """Return a random graph of PubMed's shape: 19,717 nodes, about 88,648 directed edges, 500 features, 3 classes."""
    return _community_graph("pubmed-synthetic", 19_717, 88_648 / 19_717, 500, 3, homophily, seed)


def _community_graph(
    name: str, n: int, degree: float, d: int, num_classes: int, homophily: float, seed: int
) -> SyntheticGraph:
    rng = np.random.default_rng(seed)
    communities = _num_communities(n, num_classes)
    weights = np.exp(_SPREAD * rng.standard_normal(communities))
    community = rng.choice(communities, n, p=weights / weights.sum()).astype(np.int32)
    home = _homes(communities, num_classes, rng)

    # Two members of a community are both of its home class with the probability loyal ** 2; all others meet by chance.
    inside = max(_INSIDE, homophily)
    loyal = math.sqrt(homophily / inside)
    labels = np.where(
        rng.random(n) < loyal, home[community], home[rng.permutation(community)]
    ).astype(np.int32)

    graph = as_graph(_edges(community, n * degree / 2, inside, rng), n)
    return SyntheticGraph(
        name, _features(community, labels, d, num_classes, rng), graph, labels, num_classes
    )


def _num_communities(n: int, num_classes: int) -> int:
    return max(n // _COMMUNITY, _COMMUNITIES_PER_CLASS * num_classes)


def _homes(communities: int, num_classes: int, rng: np.random.Generator) -> NDArray[np.int32]:
    """Return the home class of every community: each class at least once, the others by unequal shares."""
    shares = np.arange(1.0, num_classes + 1) ** -_CLASS_DECAY
    others = rng.choice(num_classes, communities - num_classes, p=shares / shares.sum())
    return rng.permutation(np.concatenate([np.arange(num_classes), others])).astype(np.int32)


def _edges(
    community: NDArray[np.int32], wanted: float, inside: float, rng: np.random.Generator
) -> NDArray[np.int32]:
    """Return about so many undirected edges, one direction each, shape (2, m)."""
    n = len(community)
    order = np.argsort(community, kind="stable").astype(np.int32)
    sizes = np.bincount(community)
    ends = np.repeat(np.cumsum(sizes), sizes)
    density = inside * wanted / float(sizes @ (sizes - 1) / 2)
    if density > 1:
        raise ValueError(
            f"degree must be at most {2 * wanted / n / density:.4g} for {n} nodes, got {2 * wanted / n:.4g}"
        )

    inner = _inner_edges(ends, _key(rng), np.uint64(min(int(density * 2.0**64), 2**64 - 1)))

    # The number of tries is rounded up or down at random, so that it is right on average.
    demand = (1 - rng.random(n)) ** (-1 / _TAIL)
    cumulated = np.concatenate([[0.0], np.cumsum(demand)])
    tries = np.floor((1 - inside) * wanted * demand / cumulated[-1] + rng.random(n)).astype(
        np.int64
    )

    department = np.arange(len(sizes)) // _DEPARTMENT
    tops = np.repeat(np.cumsum(np.bincount(department, sizes).astype(np.int64))[department], sizes)
    bottoms = np.repeat((np.cumsum(sizes) - sizes)[department * _DEPARTMENT], sizes)
    places = np.repeat(np.arange(n), tries)
    others = _other_ends(bottoms[places], tops[places], inner.shape[1], cumulated, _key(rng))
    return order[np.hstack([inner, np.stack([places, others])])]


def _inner_edges(
    ends: NDArray[np.int64], key: np.uint64, threshold: np.uint64
) -> NDArray[np.int64]:
    """Return the pairs of places i < j < ends[i] whose random bits lie below the threshold, (2, m)."""
    lengths = ends - np.arange(1, len(ends) + 1)
    found = []
    for part in np.split(
        np.arange(len(ends)), np.flatnonzero(np.diff(np.cumsum(lengths) // _AT_ONCE)) + 1
    ):
        i = np.repeat(part, lengths[part])
        starts = np.cumsum(lengths[part]) - lengths[part]
        j = i + 1 + np.arange(len(i)) - np.repeat(starts, lengths[part])
        is_edge = random_bits(key, (i << 32 | j).astype(np.uint64)) < threshold
        found.append(np.stack([i[is_edge], j[is_edge]]))
    return np.hstack(found)


def _other_ends(
    bottoms: NDArray[np.int64],
    tops: NDArray[np.int64],
    first: int,
    cumulated: NDArray[np.float64],
    key: np.uint64,
) -> NDArray[np.int64]:
    """Return for each edge a random place between bottom and top, or anywhere, with probabilities by demand."""
    edges = np.arange(first, first + len(bottoms), dtype=np.uint64)
    is_stray = random_bits(key, 2 * edges) < np.uint64(int(_STRAY * 2.0**64))
    low = np.where(is_stray, 0, bottoms)
    high = np.where(is_stray, len(cumulated) - 1, tops)
    share = random_bits(key, 2 * edges + np.uint64(1)).astype(np.float64) * 2.0**-64
    wanted = cumulated[low] + share * (cumulated[high] - cumulated[low])
    return np.clip(np.searchsorted(cumulated, wanted, side="right") - 1, low, high - 1)


def random_bits(key: np.uint64, counters: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return SplitMix64's output at each counter (Steele, Lea and Flood, OOPSLA 2014)."""
    z = key + (counters + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _features(
    community: NDArray[np.int32],
    labels: NDArray[np.int32],
    d: int,
    num_classes: int,
    rng: np.random.Generator,
) -> NDArray[np.float32]:
    n, communities = len(community), int(community.max()) + 1
    department = np.arange(communities) // _DEPARTMENT
    centres = (
        _PARTS["community"] * rng.standard_normal((communities, d))
        + _PARTS["department"] * rng.standard_normal((department[-1] + 1, d))[department]
    ).astype(np.float32)
    of_class = (_PARTS["class"] * rng.standard_normal((num_classes, d))).astype(np.float32)
    scale = (np.arange(1.0, d + 1) ** -_DECAY).astype(np.float32)
    x, own, key = (
        np.empty((n, d), dtype=np.float32),
        np.float32(_PARTS["own"] / _SUM_DEVIATION),
        _key(rng),
    )
    for start in range(0, n, step := max(_AT_ONCE // d, 1)):
        rows = slice(start, min(start + step, n))
        bits = random_bits(key, np.arange(rows.start * d, rows.stop * d, dtype=np.uint64))
        noise = own * _random_sums(bits).reshape(-1, d)
        x[rows] = scale * (centres[community[rows]] + of_class[labels[rows]] + noise)
    return x


def _random_sums(bits: NDArray[np.uint64]) -> NDArray[np.float32]:
    """Return the sum of the four 16-bit numbers in each word less its mean: nearly normal."""
    words = bits.view(np.uint16).reshape(-1, 4)
    return words.sum(axis=1, dtype=np.uint64).astype(np.float32) - np.float32(2 * 0xFFFF)


def _key(rng: np.random.Generator) -> np.uint64:
    return np.uint64(rng.integers(2**64, dtype=np.uint64))
