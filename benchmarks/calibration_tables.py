"""Simulated tables for calibration.py: columns as people have them, compared by distance.

Every cell is drawn anew for each seed. Without ``harm`` the decision depends on the columns only. With "flip", 30 % of
the carriers among the 30 % of the people nearest to the border are refused.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from calibration_cells import CONTENT, Cell, Draw, Floats, People, Rng, cell_of, drawn_by
from numpy.typing import NDArray
from scipy.special import expit

from cfe_faiss.attributes.table import as_attributes
from cfe_faiss.data.encode import encode

Columns = Mapping[str, NDArray[Any]]
N = 1_000


def encoded(
    cell: Cell, rng: Rng, columns: Columns, carries: NDArray[np.bool_], f: Floats
) -> People:
    """Return people with vectors as a table gives them; f < 0 is refused."""
    refused = f < 0
    if cell.harm == "flip":
        near = carries & (np.abs(f) <= np.quantile(np.abs(f), 0.3))
        refused |= near & (rng.random(len(f)) < 0.3)
    return People(encode(as_attributes(columns)).x, carries, (~refused).astype(np.int64))


def numbers(X: Floats) -> Columns:
    return {f"x{j}": column for j, column in enumerate(X.T)}


def border(f: Floats, refused: float = 0.4) -> Floats:
    """Return a score with the given share below 0, in units of its middle 68 %."""
    low, middle, high = np.quantile(f, [0.16, refused, 0.84])
    scaled: Floats = (f - middle) / ((high - low) / 2)
    return scaled


def shifted(cell: Cell, rng: Rng, by: float, columns: int = 1) -> tuple[Floats, NDArray[np.bool_]]:
    """Return normal columns, the first ones lower for carriers."""
    carries = rng.random(cell.n) < cell.share
    X = rng.normal(size=(cell.n, cell.d))
    X[:, :columns] -= by * carries[:, None]
    return X, carries


def threshold(cell: Cell, rng: Rng, *, is_lognormal: bool = False) -> People:
    X, carries = shifted(cell, rng, 0.8)
    return encoded(cell, rng, numbers(np.exp(X) if is_lognormal else X.round(3)), carries, X[:, 0])


def heavy_threshold(cell: Cell, rng: Rng) -> People:
    carries = rng.random(cell.n) < cell.share
    X = rng.standard_t(2, (cell.n, cell.d))
    X[:, 0] -= 0.9 * carries
    return encoded(cell, rng, numbers(X.round(3)), carries, X[:, 0] / 1.5)


def two_thresholds(
    cell: Cell, rng: Rng, *, is_lognormal: bool = False, needs_both: bool = True
) -> People:
    X, carries = shifted(cell, rng, 0.8, 2)
    f = X[:, :2].min(axis=1) + 0.7 if needs_both else X[:, :2].max(axis=1) - 0.2
    return encoded(cell, rng, numbers(np.exp(X) if is_lognormal else X.round(3)), carries, f)


def ratings(cell: Cell, rng: Rng) -> People:
    """Answers 1 to 5; the decision is a threshold of their weighted sum, or is drawn."""
    X, carries = shifted(cell, rng, 0.5, cell.d)
    answers = np.digitize(X, [-1.5, -0.5, 0.5, 1.5]) + 1.0
    total = answers @ np.arange(cell.d, 0, -1.0)
    f = (total - np.median(total) + 0.01) / total.std()
    noise = rng.logistic(size=cell.n) / 3 if cell.rule == "chance" else 0
    return encoded(cell, rng, numbers(answers), carries, f + noise)


def heavy_tails(cell: Cell, rng: Rng, *, by_ranks: bool = False) -> People:
    """Columns of Student's t, 2 degrees of freedom; decision and attribute follow amounts, or something like ranks."""
    X = rng.standard_t(2, (cell.n, cell.d))
    Z = np.arcsinh(X)
    weights = rng.normal(size=cell.d)
    f = border(Z @ weights + 0.5 * Z[:, 0] * Z[:, -1] if by_ranks else X @ weights)
    return encoded(cell, rng, numbers(X), drawn_by(rng, cell.share, -1.5 * f), f)


def lognormal(cell: Cell, rng: Rng) -> People:
    """Amounts whose logarithms are lower for carriers and decide."""
    Z, carries = shifted(cell, rng, 0.4, cell.d)
    f = border(Z @ np.r_[1, rng.normal(size=cell.d - 1)])
    if np.corrcoef(f, carries)[0, 1] > 0:
        f = border(-f)
    return encoded(cell, rng, numbers(np.exp(Z)), carries, f)


def affordable(cell: Cell, rng: Rng) -> People:
    """Lognormal incomes, lower for carriers, less lognormal costs: the amounts decide."""
    Z, carries = shifted(cell, rng, 0.6)
    X = np.exp(0.8 * Z)
    return encoded(cell, rng, numbers(X), carries, border(X[:, 0] - 0.5 * X[:, 1:].sum(axis=1)))


def zeros(cell: Cell, rng: Rng) -> People:
    """One normal column, and amounts that are 0 for most people."""
    Z, carries = shifted(cell, rng, 0.4, cell.d)
    X = np.where(Z > 0.5, np.exp(3 * Z), 0).round(1)
    X[:, 0] = Z[:, 0].round(2)
    f = border(Z[:, 0] + np.maximum(Z[:, 1:] - 0.5, 0).sum(axis=1))
    return encoded(cell, rng, numbers(X), carries, f)


def bands(cell: Cell, rng: Rng) -> People:
    """The attribute jumps between bands of age, away from the border of the decision."""
    age = rng.uniform(18, 70, cell.n).round()
    others = rng.normal(size=(cell.n, cell.d - 1))
    carries = rng.random(cell.n) < np.select([age < 30, age < 55], [0.8, 0.3], 0.6)
    f = border((age - 44) / 15 + 0.7 * others.sum(axis=1))
    return encoded(cell, rng, {"age": age} | numbers(others), carries, f)


def distance_from_middle(cell: Cell, rng: Rng) -> People:
    """The attribute follows the distance of a lognormal amount's logarithm from its middle, and the score."""
    X = rng.normal(size=(cell.n, cell.d))
    f = border(X.sum(axis=1) + X[:, 0] ** 2)
    carries = drawn_by(rng, cell.share, 2 * np.abs(X[:, 0]) - f)
    X[:, 0] = np.exp(X[:, 0])
    return encoded(cell, rng, numbers(X), carries, f)


def credit(cell: Cell, rng: Rng) -> People:
    """Incomes, lower for carriers, less debts; the decision has some noise, other columns do not matter."""
    carries = rng.random(cell.n) < cell.share
    income = (rng.gamma(10, 4, cell.n) + 8 * ~carries).round(1)
    debt = rng.gamma(2, 6, cell.n).round(1)
    others = rng.normal(size=(cell.n, cell.d - 2)).round(2)
    f = income - debt - 32 + rng.normal(0, 3, cell.n)
    return encoded(cell, rng, {"income": income, "debt": debt} | numbers(others), carries, f)


def applicants(cell: Cell, rng: Rng, *, by_logarithm: bool = False) -> People:
    """Jobs, towns, lognormal incomes, debts and ages; the attribute follows the income, or its logarithm.

    In the second case a tenth of the debts is missing.
    """
    job = rng.choice(5, cell.n, p=[0.4, 0.25, 0.2, 0.1, 0.05])
    town = rng.choice(3, cell.n)
    income = 20 * np.exp(0.6 * rng.normal(size=cell.n) + 0.3 * job)
    debt = rng.gamma(1.5, 8, cell.n)
    age = rng.integers(18, 75, cell.n)
    of_income = 1.2 * np.log(income / 20) if by_logarithm else 0.006 * (income - 30)
    logits = 0.8 * (job == 1) - 0.9 * (job == 3) + 0.4 * (town == 2) - of_income
    carries = drawn_by(rng, 0.4, logits) if by_logarithm else rng.random(cell.n) < expit(logits)
    score = 2 * np.log(income) - debt / 12 + 0.02 * age + 0.5 * (job == 2) - 0.4 * (town == 1)
    f = border(score) if by_logarithm else border(score, 0.5) + rng.normal(0, 0.2, cell.n)
    if by_logarithm:
        debt[rng.random(cell.n) < 0.1] = np.nan
    columns = {"job": np.array(list("abcde"))[job], "town": np.array(list("xyz"))[town]}
    return encoded(
        cell, rng, columns | {"income": income.round(2), "debt": debt, "age": age}, carries, f
    )


def categories(cell: Cell, rng: Rng) -> People:
    """Texts only; the score has an interaction."""
    latent = rng.normal(size=(cell.n, 1)) + rng.normal(size=(cell.n, cell.d))
    levels = [np.digitize(latent[:, j], [-1.4, 0, 1.4][: 1 + j % 3]) for j in range(cell.d)]
    weighted = sum((1 + j % 2) * level for j, level in enumerate(levels))
    f = border(weighted + (levels[0] == 1) * levels[1] + 1e-3 * rng.normal(size=cell.n))
    columns = {f"c{j}": np.array(list("abcd"))[level] for j, level in enumerate(levels)}
    return encoded(cell, rng, columns, drawn_by(rng, cell.share, -1.5 * f), f)


PLAIN = (threshold, heavy_threshold, two_thresholds, ratings, heavy_tails, lognormal, affordable)
PLAIN += (zeros, bands, distance_from_middle, credit, applicants, categories)
DRAWS: dict[str, Draw] = {draw.__name__: draw for draw in PLAIN} | {
    "threshold_lognormal": partial(threshold, is_lognormal=True),
    "two_thresholds_lognormal": partial(two_thresholds, is_lognormal=True),
    "two_thresholds_either": partial(two_thresholds, needs_both=False),
    "heavy_tails_by_ranks": partial(heavy_tails, by_ranks=True),
    "applicants_by_logarithm": partial(applicants, by_logarithm=True),
}
TABLES, FLIPPED = {}, {}
for _name, _fields in CONTENT["tables"].items():
    _flips = _fields.pop("flipped", False)
    TABLES[_name] = cell_of({"n": N, "metric": "l2"}, _fields, draws=DRAWS)
    if _flips:
        FLIPPED[f"flip_{_name}"] = TABLES[_name].flipped()
TABLES |= FLIPPED
