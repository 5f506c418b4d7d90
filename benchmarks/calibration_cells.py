"""Simulated people for calibration.py: vectors, who carries a value, and decisions with or without a direct effect.

The populations are listed in calibration_cells.toml.

Every cell is drawn anew for each seed. Decisions are 1 (favourable) or 0. The score f decides; 40 % lie below its
border. ``harm`` is what the attribute itself adds:

- "flip": of the carriers among the 30 % of the people nearest to the border, a share ``size`` is refused.
- "shift": the score of carriers is lowered by ``size`` standard deviations.
- "learned": a model learns from labels whose score is lowered by ``size``, and sees the attribute.
"""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.ensemble import HistGradientBoostingClassifier

import cfe_faiss as cfe

Floats = NDArray[np.float64]
Rng = np.random.Generator


class People(NamedTuple):
    """Vectors (n, d), who carries the value (n,), decisions (n,), and the person of each row if people repeat."""

    X: NDArray[Any]
    carries: NDArray[np.bool_]
    decisions: NDArray[np.int64]
    persons: NDArray[np.int64] | None = None


@dataclass(frozen=True)
class Cell:
    """One kind of population.

    ``link``: how the attribute follows the score (None: not at all), ``strength`` how strongly.
    """

    title: str
    share: float = 0.5
    link: str | None = None
    strength: float = 2.0
    rule: str = "threshold"  # or "chance", "boosting"
    score: str = "quadratic"  # or "network"
    harm: str | None = None
    size: float = 0.3
    n: int = 1500
    d: int = 12
    is_limit: bool = False
    draw: Callable[["Cell", Rng], People] | None = None
    refused: float = 0.4
    metric: str = "cosine"

    def flipped(self) -> "Cell":
        """Return the same cell, where 30 % of the carriers near the border are refused."""
        return replace(self, title=f"flipped: {self.title}", harm="flip")


Draw = Callable[[Cell, Rng], People]


def people(name: str, cell: Cell, seed: int) -> People:
    """Return the people of a cell, the same for the same seed."""
    rng = np.random.default_rng([seed, crc32(name.encode())])
    return (cell.draw or ordinary)(cell, rng)


def ordinary(cell: Cell, rng: Rng, tails: float | None = None) -> People:
    X, carries, f = scored(cell, rng, tails)
    return People(X, carries, decide(cell, rng, X, carries, f))


def scored(
    cell: Cell, rng: Rng, tails: float | None = None
) -> tuple[Floats, NDArray[np.bool_], Floats]:
    """Return vectors, who carries the value, and the score."""
    scale = np.arange(1, cell.d + 1) ** -0.5
    drawn = (
        rng.normal(size=(cell.n, cell.d))
        if tails is None
        else rng.standard_t(tails, (cell.n, cell.d))
    )
    X = drawn * scale
    carries, direction = None, np.zeros(cell.d)
    if cell.link == "group":  # the attribute comes first, and moves the features
        carries = rng.random(cell.n) < cell.share
        direction = rng.normal(size=cell.d)
        direction *= cell.strength / np.linalg.norm(direction)
        X -= np.outer(carries, direction * scale)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    weights = rng.normal(size=cell.d)
    f = X @ weights + X[:, 0] * X[:, 1]
    if cell.score == "network":
        f = np.tanh(3 * X @ rng.normal(size=(cell.d, 12)) + rng.normal(size=12)) @ rng.normal(
            size=12
        )
    f = standard(f, cell.refused)
    if carries is not None and np.corrcoef(carries, f)[0, 1] > 0:
        f = standard(-f, cell.refused)  # carriers score lower, as in the other cells
    if carries is None:
        carries = drawn_by(rng, cell.share, cell.strength * link(cell.link, f, X, weights, rng))
    return X, carries, f


def heavy_tails(cell: Cell, rng: Rng) -> People:
    return ordinary(cell, rng, tails=2)


def categories(cell: Cell, rng: Rng) -> People:
    """A one-hot table with many people alike, its rows sorted by the attribute."""
    latent = rng.normal(size=(cell.n, 1)) + rng.normal(size=(cell.n, 5))
    levels = [
        np.digitize(latent[:, j], cuts)
        for j, cuts in enumerate(([-1, 1], [-1, 0, 1], [0], [-2, -1, 1, 2], [0, 2]))
    ]
    X = np.column_stack([np.eye(level.max() + 1)[level] for level in levels])
    f = standard(
        X @ rng.normal(size=X.shape[1])
        + levels[0] * (levels[2] == 1)
        + 1e-3 * rng.normal(size=cell.n),
        0.4,
    )
    carries = drawn_by(rng, cell.share, cell.strength * link(cell.link, f, X, np.zeros(0), rng))
    return sorted_by_attribute(X, carries, decide(cell, rng, X, carries, f))


def corners(cell: Cell, rng: Rng) -> People:
    """People of eight different vectors, sorted by the attribute."""
    X = rng.choice([-1.0, 1.0], (cell.n, 3))
    f = standard(X @ rng.normal(size=3), cell.refused)
    carries = drawn_by(rng, cell.share, cell.strength * link(cell.link, f, X, np.zeros(0), rng))
    return sorted_by_attribute(X, carries, decide(cell, rng, X, carries, f))


def repeated(cell: Cell, rng: Rng) -> People:
    """Half of the people, each of them twice."""
    once = ordinary(replace(cell, n=cell.n // 2, draw=None), rng)
    return People(
        np.repeat(once.X, 2, axis=0), np.repeat(once.carries, 2), np.repeat(once.decisions, 2)
    )


def repeated_people(cell: Cell, rng: Rng, *, most: int = 2, moves: float = 0.0) -> People:
    """People with ``most`` rows each or, if these are more than two, with 1 to ``most``; the tests know whose they are.

    With ``moves``, rows of one person differ, each is decided for itself, and the attribute follows their mean score.
    """
    count = 2 * cell.n // (most + 2 * (most == 2))
    persons = np.repeat(np.arange(count), most if most == 2 else rng.integers(1, most + 1, count))
    drawn = rng.normal(size=(count, cell.d))[persons] + moves * rng.normal(
        size=(len(persons), cell.d)
    )
    X = drawn * np.arange(1, cell.d + 1) ** -0.5
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    weights = rng.normal(size=cell.d)
    f = standard(X @ weights + X[:, 0] * X[:, 1], cell.refused)
    mean = np.bincount(persons, weights=f) / np.bincount(persons)
    carries = drawn_by(rng, cell.share, cell.strength * link(cell.link, mean, X, weights, rng))[
        persons
    ]
    return People(X, carries, decide(cell, rng, X, carries, f), persons)


def sorted_by_attribute(
    X: Floats, carries: NDArray[np.bool_], decisions: NDArray[np.int64]
) -> People:
    order = np.argsort(carries, kind="stable")
    return People(X[order], carries[order], decisions[order])


def graph(cell: Cell, rng: Rng) -> People:
    """KS vectors of a graph whose edges mostly join people of one group, with features that differ by group."""
    carries = rng.random(cell.n) < cell.share
    x = rng.normal(size=(cell.n, cell.d)) - 0.5 * np.outer(
        carries, rng.normal(size=cell.d) / np.sqrt(cell.d)
    )
    first, second = rng.integers(0, cell.n, (2, 12 * cell.n))
    kept = rng.random(len(first)) < np.where(carries[first] == carries[second], 0.4, 0.05)
    edges = np.stack([first[kept], second[kept]])
    X = cfe.ks_vectors(x, edges).astype(np.float64)
    f = standard(X @ rng.normal(size=X.shape[1]) + X[:, 0] * X[:, 1], 0.4)
    if np.corrcoef(carries, f)[0, 1] > 0:
        f = standard(-f, 0.4)
    return People(X, carries, decide(cell, rng, X, carries, f))


def link(kind: str | None, f: Floats, X: Floats, weights: Floats, rng: Rng) -> Floats:
    """Return by how much the logit of carrying follows score and vectors."""
    if kind == "orthogonal":  # clusters in a direction that does not decide
        v = rng.normal(size=X.shape[1])
        h = X @ (v - weights * (v @ weights) / (weights @ weights))
        return (h - h.mean()) / h.std()
    forms = {
        None: lambda: np.zeros(len(f)),
        "linear": lambda: -f,
        "steep": lambda: -np.tanh(2 * f),
        "jump": lambda: -np.sign(f),
        "quadratic": lambda: -(f + 0.7 * (f**2 - 1)),
    }
    return forms[kind]()


def drawn_by(rng: Rng, share: float, logits: Floats) -> NDArray[np.bool_]:
    """Draw who carries the value, so that the expected share is as given."""
    low, high = -20.0, 20.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if expit(middle + logits).mean() < share else (low, middle)
    return rng.random(len(logits)) < expit(middle + logits)


def decide(
    cell: Cell, rng: Rng, X: Floats, carries: NDArray[np.bool_], f: Floats
) -> NDArray[np.int64]:
    lowered = cell.size * carries
    score = f - lowered if cell.harm == "shift" else f
    if cell.rule == "boosting":
        learned = cell.harm == "learned"
        labels = rng.random(len(f)) < expit(6 * (f - lowered if learned else f))
        seen = np.column_stack([X, carries]) if learned else X
        model = HistGradientBoostingClassifier(max_iter=60, max_leaf_nodes=12, early_stopping=False)
        score = model.fit(seen, labels).predict(seen) - 0.5
    granted = rng.random(len(f)) < expit(3 * score) if cell.rule == "chance" else score > 0
    if cell.harm == "flip":
        border = carries & (np.abs(f) <= np.quantile(np.abs(f), 0.3))
        granted &= ~(border & (rng.random(len(f)) < cell.size))
    return granted.astype(np.int64)


def standard(f: Floats, refused: float) -> Floats:
    """Return a score with the given share below 0, and unit scale."""
    centred: Floats = (f - np.quantile(f, refused)) / f.std()
    return centred


@dataclass(frozen=True)
class Change:
    """Two models that decide about the same people.

    ``before`` and ``after`` differ in what the attribute adds. ``right`` is the outcome that is right; empty where
    nothing changes. ``rates``: whether the rate of the carriers stays the same, too.
    """

    title: str
    before: Cell
    after: Cell
    right: str = ""
    rates: bool = True


def two_models(name: str, change: Change, seed: int) -> tuple[People, NDArray[np.int64]]:
    """Return the people as the first model decides, and the decisions of the second; the same for the same seed."""
    rng = np.random.default_rng([seed, crc32(name.encode())])
    drawn = scored(change.after, rng)
    X, carries, _ = drawn
    return People(X, carries, decide(change.before, rng, *drawn)), decide(change.after, rng, *drawn)


DRAWS: dict[str, Draw] = {
    "categories": categories,
    "corners": corners,
    "graph": graph,
    "heavy_tails": heavy_tails,
    "moved": partial(repeated_people, moves=0.2),
    "often": partial(repeated_people, most=10, moves=0.2),
    "repeated": repeated,
    "repeated_people": repeated_people,
}


def cell_of(*parts: dict[str, Any], draws: Mapping[str, Draw] = DRAWS) -> Cell:
    """Return a cell of the fields that differ from the defaults; later ones replace earlier ones."""
    fields = {name: value for part in parts for name, value in part.items()}
    draw = draws.get(fields.pop("draw", ""))
    return Cell(**{"title": ""} | fields, draw=draw)


def change_of(
    title: str,
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
    *,
    reversed: bool = False,  # noqa: A002
    **rest: Any,
) -> Change:
    """Return two models: ``after`` has what differs from ``before``."""
    models = [cell_of({"n": 1000}, before or {}, more) for more in ({}, after or {})]
    return Change(title, *(models[::-1] if reversed else models), **rest)


CONTENT = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
CELLS = {name: cell_of(fields) for name, fields in CONTENT["cells"].items()}
LARGE = {name: cell_of(fields) for name, fields in CONTENT["large"].items()}
CHANGES = {name: change_of(**fields) for name, fields in CONTENT["changes"].items()}


def many_values(
    kind: str, seed: int, n: int = 1500
) -> tuple[Floats, NDArray[np.int64], dict[str, NDArray[np.int64]]]:
    """Return vectors, decisions and six attributes of five values without any effect.

    kind: "independent", "correlated" (with vectors and score) or "rare" (values of .5 to 2 % and one of 95 %).
    """
    rng = np.random.default_rng([seed, crc32(kind.encode())])
    X, _, decisions, _ = ordinary(Cell("", n=n), rng)
    attributes = {}
    for j in range(6):
        shares = (
            np.array([0.95, 0.02, 0.015, 0.01, 0.005])
            if kind == "rare"
            else rng.dirichlet(np.full(5, 5.0))
        )
        logits = np.log(shares) + np.zeros((n, 5))
        if kind == "correlated":
            logits = logits + 2 * X @ rng.normal(size=(X.shape[1], 5))
        attributes[f"attribute {j}"] = np.argmax(logits + rng.gumbel(size=(n, 5)), axis=1)
    return X, decisions, attributes
