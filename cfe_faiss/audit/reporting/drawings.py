"""Drawings of a report as plain data; :mod:`cfe_faiss.audit.reporting.figures` draws them."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

STYLES = 6
"""How many classes look different."""


@dataclass(frozen=True, slots=True)
class Plot:
    """Chart in a column of a table: each row has a dot for its number and a line for its interval.

    Attributes
    ----------
    ticks
        Numbers written above the chart, ascending; the first and the last are the ends of the scale.
    guides
        Where dashed lines stand.
    expected, before
        Keys of numbers drawn as an upright bar and as a square; empty for none.
    """

    ticks: tuple[float, ...]
    guides: tuple[float, ...] = ()
    expected: str = ""
    before: str = ""

    @classmethod
    def around(cls, numbers: Iterable[float | None], guides: tuple[float, ...] = (), **keys: str) -> Self:
        """Return a chart whose scale holds all numbers and guides.

        Examples
        --------
        >>> Plot.around([0.72, None, 1.1], (0.8, 1.0)).ticks
        (0.7, 0.8, 0.9, 1.0, 1.1)
        """
        known = [number for number in (*numbers, *guides) if number is not None and math.isfinite(number)] or [0, 1]
        low, high = min(known), max(known)
        rough = (high - low or 1) / 5
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
        first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
        return cls(tuple(round(step * i, 10) for i in range(first, max(last, first + 1) + 1)), guides, **keys)


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Neighbour of a node: its name, the number of its predicted class, and whether the other node has it, too."""

    name: str
    style: int
    shared: bool


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """Node with the neighbours that are drawn.

    Attributes
    ----------
    name, style
        Of the node, and the number of its predicted class among those of the drawing.
    neighbours
        Clockwise.
    edges
        Pairs of positions in ``neighbours`` that are connected.
    """

    name: str
    style: int
    neighbours: tuple[Neighbour, ...]
    edges: tuple[tuple[int, int], ...]
