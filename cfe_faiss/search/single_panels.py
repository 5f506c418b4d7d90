"""Panels of all lists, for single queries; goes with :mod:`cfe_faiss.search.panels` once these are native."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.checks import UNKNOWN
from cfe_faiss.lists.codecs import FLAT
from cfe_faiss.lists.storage import Storage
from cfe_faiss.parallel import run
from cfe_faiss.search import meet, panels
from cfe_faiss.search.exact import slices

MEMORY = 1 << 31
SLACK = 8

_LISTS_AT_ONCE = 64
_HEAD = 16  # words, of which rows are looked at before their length alone may tell enough
_WORTH_TURNING = 1 << 16  # rows; among fewer, to turn the queries takes more than it saves
_SAMPLE = 1 << 14  # rows tell the directions
_LONGEST_REST = 0.5  # of the squared lengths may come after the head


@dataclass(frozen=True, slots=True)
class Panels:
    """The eligible rows of some lists; names are those of :func:`sweep.scan_groups`.

    ``R`` are the directions to which they are turned, (d, d), or none, (0, d).
    """

    R: NDArray[np.float32]
    head: int
    blur: float
    starts: NDArray[np.int64]
    centres: NDArray[np.float32]
    P: NDArray[np.int32]
    facts: NDArray[np.int32]
    addresses: NDArray[np.int64]
    ids: NDArray[np.int64]


def all_panels(storage: Storage) -> Panels | None:
    """Return panels to be kept, of all lists of an index with one partition; None where that is too much."""
    number = int((-(-np.diff(storage.starts) // meet.LANES)).sum())
    size = number * meet.LANES * (4 * (panels.words_of(storage.d, True) + meet.FACTS) + 16)
    if not meet.HAS_BYTES or storage.codec != FLAT or size > MEMORY:
        return None
    return packed(storage)


def packed(storage: Storage) -> Panels:
    """Make the panels of all lists."""
    in_bytes = True
    eligible = storage.labels != UNKNOWN
    rows = np.flatnonzero(eligible)
    borders = np.append(0, np.cumsum(eligible))[storage.starts]
    sizes = np.diff(borders)
    starts = np.append(0, np.cumsum(-(-sizes // meet.LANES)))
    centres = np.empty((len(sizes), storage.d), np.float32)
    made = panels.room_for(int(starts[-1]), storage.d, in_bytes)

    def centred(cut: slice) -> NDArray[np.float32]:
        own = borders[cut.start : cut.stop + 1]
        return panels.centre(storage.rows(rows[own[0] : own[-1]])[0], own - own[0], centres[cut])

    R = np.empty((0, storage.d), np.float32)
    head, blur = panels.words_of(storage.d, in_bytes), 0.0
    if in_bytes and len(rows) >= _WORTH_TURNING and head >= 2 * _HEAD:
        directions, rest = _directions(centred, borders)
        if rest <= _LONGEST_REST:
            R, head, blur = directions, _HEAD, panels.blur(storage.d)

    def pack(cut: slice) -> None:
        own = rows[borders[cut.start] : borders[cut.stop]]
        X = centred(cut)
        if len(R):
            with np.errstate(invalid="ignore"):  # rows of a damaged file may hold anything
                X = X @ R
        panels.pack(
            X,
            own,
            storage.labels,
            storage.row_addresses,
            storage.row_ids,
            in_bytes,
            head,
            blur,
            borders[cut.start : cut.stop + 1] - borders[cut.start],
            int(starts[cut.start]),
            *made,
        )

    run(pack, slices(len(sizes), _LISTS_AT_ONCE), work=float(len(rows)) * storage.d)
    return Panels(R, head, blur, starts, centres, *made)


def _directions(
    centred: Callable[[slice], NDArray[np.float32]], borders: NDArray[np.int64]
) -> tuple[NDArray[np.float32], float]:
    """Return the principal directions, (d, d), of a sample of rows, and the share of their squares after the head.

    ``centred`` returns the rows of a run of lists without their means; list j has ``borders[j]:borders[j + 1]``.
    """
    lists = len(borders) - 1
    few = max(1, round(lists * min(1.0, _SAMPLE / int(borders[-1]))))
    some = np.unique(np.linspace(0, lists - 1, few).astype(np.int64))
    rows = np.concatenate([centred(slice(int(j), int(j) + 1)) for j in some])
    with np.errstate(invalid="ignore", over="ignore"):
        squares = (rows.T @ rows).astype(np.float64)
    if not np.isfinite(squares).all():
        return rows[:0], math.inf
    values, directions = np.linalg.eigh(squares)
    rest = float(values[: -4 * _HEAD].sum() / max(values.sum(), np.finfo(np.float64).tiny))
    return np.ascontiguousarray(directions[:, ::-1], np.float32), rest
