"""People whose decisions are tested, with their neighbours and closest pairs. Nothing here depends on the attribute."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.attributes.constraints import Constraints
from cfe_faiss.audit import direct_test
from cfe_faiss.audit.direct_test import ScoreTest
from cfe_faiss.audit.groups import Bins, Grouping, groupings
from cfe_faiss.audit.tables import Bools, Floats, Ints
from cfe_faiss.base.checks import UNKNOWN, as_names, did_you_mean
from cfe_faiss.finder import EvidenceFinder
from cfe_faiss.index.flat import IndexEvidenceFlat
from cfe_faiss.index.parameters import EvidenceParameters
from cfe_faiss.pairs import global_evidence

_SEED = 20
ANY_LABEL = 2
"""Label of queries that excludes no row: stored rows have label 0 or 1."""


@dataclass(frozen=True)
class Sample:
    """People in an order that depends on their vectors and a fixed seed, neither on the attribute nor on their ids.

    Searches break ties by position in this order. Data that need no attribute are computed once.

    Attributes
    ----------
    rows
        Row number in the finder, (n,) int64.
    vectors
        Unit rows, (n, d) float32.
    unfavourable
        Whether each person was decided unfavourably, (n,).
    """

    rows: Ints
    vectors: NDArray[np.float32]
    unfavourable: Bools

    def __len__(self) -> int:
        return len(self.rows)

    def index_by(self, labels: Bools) -> IndexEvidenceFlat:
        """Return an exact index with these labels as classes and positions as ids."""
        index = IndexEvidenceFlat(self.vectors.shape[1])
        index.add_with_labels(self.vectors, labels.astype(np.int32))
        return index

    @cached_property
    def index(self) -> IndexEvidenceFlat:
        """Exact index with the decisions as classes."""
        return self.index_by(self.unfavourable)

    @cached_property
    def basis(self) -> Floats:
        """Columns of the null model, see :func:`cfe_faiss.audit.direct_test.basis`."""
        return direct_test.basis(self.vectors, self.unfavourable)

    @cached_property
    def pairs(self) -> tuple[Ints, Ints, NDArray[np.float32]]:
        """The most similar pairs with different decisions, chosen greedily, each person in at most one.

        Positions of the unfavourable and of the other side, and the similarity.
        """
        found = global_evidence(self.index, max(1, len(self) // 5), where=Constraints(replace=False))
        both = np.stack([found.source, found.target])
        refused, granted = np.where(self.unfavourable[found.source], both, both[::-1])
        return refused, granted, found.similarity

    def neighbours(self, k: int, positions: Ints | None = None) -> Ints:
        """Return the k nearest people of either group, (n, k), without the person."""
        positions = np.arange(len(self)) if positions is None else positions
        found = self.index.search(self.vectors[positions], k + 1, params=EvidenceParameters(labels=ANY_LABEL))[1]
        is_self = found == positions[:, None]
        is_self[~is_self.any(axis=1), -1] = True  # more than k identical people: drop the last one instead
        others: Ints = found[~is_self].reshape(len(found), -1)
        return others

    def obstacle(self, carries: Bools) -> str:
        """Return why this value cannot be tested; empty if it can."""
        n, carriers, refused = len(self), int(carries.sum()), int(self.unfavourable.sum())
        least = direct_test.LEAST_GROUP
        if min(carriers, n - carriers) < least:
            return f"{carriers} carry the value and {n - carriers} do not, fewer than {least}"
        if not 0 < refused < n:
            return "all decisions are alike"
        varying = int((self.vectors != self.vectors[0]).any(axis=0).sum())
        if not varying:
            return "all vectors are alike"
        return f"{varying} dimensions are more than a tenth of {n} people" if 10 * varying > n else ""

    def test(self, carries: Bools, contrasts: Sequence[Floats]) -> tuple[Floats, list[ScoreTest]]:
        """Return the propensity of carrying the value, NaN if it cannot be tested, and a test of each contrast."""
        if reason := self.obstacle(carries):
            return np.full(len(self), np.nan), [ScoreTest(reason=reason)] * len(contrasts)
        chance = direct_test.propensity(self.basis, carries)
        return chance, direct_test.score_tests(self.basis, carries, chance, contrasts)

    def situation_contrast(self, k: int) -> Floats:
        """Return each decision minus the mean decision of the k nearest people, (n,)."""
        if len(self) < 2:
            return np.zeros(len(self))
        near: Floats = self.unfavourable[self.neighbours(min(k, len(self) - 1))].mean(axis=1)
        return self.unfavourable - near

    @cached_property
    def evidence_contrast(self) -> Floats:
        """1 for the unfavourable side of each pair, -1 for the other side, 0 for people in no pair, (n,)."""
        contrast = np.zeros(len(self))
        contrast[self.pairs[0]], contrast[self.pairs[1]] = 1, -1
        return contrast


def sample(finder: EvidenceFinder, rows: Ints, unfavourable: NDArray[np.int32]) -> Sample:
    """Return a sample of rows of a finder. Its order depends on the set of rows, not on their order."""
    width = finder.vectors.shape[1] * finder.vectors.itemsize
    as_bytes = np.ascontiguousarray(finder.vectors[rows]).view(f"V{width}").ravel()
    order = np.argsort(as_bytes, kind="stable")
    order = order[np.random.default_rng(_SEED).permutation(len(rows))]
    rows = rows[order]
    return Sample(rows, finder.vectors[rows], np.isin(finder.labels[rows], unfavourable))


def question(
    finder: EvidenceFinder,
    attribute: str | Sequence[str],
    values: tuple[str, Any],
    unfavourable: Any,
    nodes: Any,
    bins: Bins,
) -> tuple[Sample, Bools, dict[str, Any]]:
    """Return the sample of a direct test, who of it carries the value, and the result's fields on both.

    ``values`` are the name of the argument and the value or values.
    """
    bad = finder.class_numbers("unfavourable", unfavourable)
    rows = known_rows(finder, nodes)
    names = [attribute] if isinstance(attribute, str) else list(as_names("attribute", attribute))
    single, crossed = (names, []) if len(names) == 1 else ([], [names])
    group = attribute_groups(finder, rows, single, bins, crossed)[0]
    given, carries = carriers(values[0], group, values[1])
    known = group.codes != UNKNOWN
    people = sample(finder, rows[known], bad)
    fields = {
        "attribute": group.name,
        "value": tuple(given),
        "unfavourable": tuple(finder.class_name(int(label)) for label in bad),
        "n_carriers": int(carries.sum()),
        "n_others": int((known & ~carries).sum()),
        "unknown": int((~known).sum()),
    }
    return people, carries[np.searchsorted(rows, people.rows)], fields


def known_rows(finder: EvidenceFinder, nodes: Any) -> Ints:
    """Return the searched rows with a predicted class, ascending; restricted to ``nodes``, if given."""
    members = finder.index.members().ids
    rows = members if nodes is None else np.unique(finder.searched("nodes", nodes))
    known: Ints = rows[finder.labels[rows] != UNKNOWN]
    return known


def attribute_groups(
    finder: EvidenceFinder, rows: Ints, names: Sequence[str], bins: Bins, intersections: Sequence[Sequence[str]] = ()
) -> list[Grouping]:
    """Return the groups of rows by attribute and by intersection; the code of a missing value is -1.

    Raises
    ------
    ValueError
        If the finder has no attributes, or not these.
    """
    attributes = finder.attributes
    if attributes is None:
        raise ValueError("finder must know the attributes of its rows (features=...), got none")
    of_rows = attributes.rows(rows)
    groups = groupings(attributes, rows, names, bins, intersections)
    for group, parts in zip(groups, [*((name,) for name in names), *intersections], strict=True):
        group.codes[np.any([attributes[str(part)].missing[of_rows] for part in parts], axis=0)] = UNKNOWN
    return groups


def carriers(argument: str, group: Grouping, values: Any) -> tuple[list[str], Bools]:
    """Return the names of some values of an attribute, and who carries one of them.

    Raises
    ------
    ValueError
        If there is no such value.
    """
    several = isinstance(values, Collection) and not isinstance(values, str | bytes)
    names = list(dict.fromkeys(_name(value) for value in (values if several else [values])))
    if not names:
        raise ValueError(f"{argument} must hold one value at least, got none")
    for name in names:
        if name not in group.values:
            known = ", ".join(group.values[:20])
            hint = did_you_mean(name, group.values)
            raise ValueError(f"{argument} must be among the values of {group.name!r} ({known}), got {name!r}{hint}")
    return names, np.isin(group.codes, [group.values.index(name) for name in names])


def _name(value: Any) -> str:
    """Return the group name of a value: integers have no decimal point."""
    is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    return f"{value:.0f}" if is_number and float(value).is_integer() else str(value)
