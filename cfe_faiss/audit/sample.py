"""People whose decisions are tested, with their neighbours and closest pairs. Nothing here depends on the attribute."""

import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.attributes.constraints import Constraints
from cfe_faiss.audit import direct_test
from cfe_faiss.audit.direct_test import ScoreTest
from cfe_faiss.audit.evidence import attributes_of, canonical_order, drop_self, known_rows
from cfe_faiss.audit.groups import Bins, Grouping, groupings
from cfe_faiss.audit.tables import Bools, Floats, Ints
from cfe_faiss.base.checks import UNKNOWN, as_names, check_known
from cfe_faiss.finder import EvidenceFinder
from cfe_faiss.index.flat import IndexEvidenceFlat
from cfe_faiss.index.parameters import EvidenceParameters
from cfe_faiss.pairs import global_evidence
from cfe_faiss.rows.metric import Metric, measured

_SEED = 20
ANY_LABEL = 2
"""Label of queries that excludes no row: stored rows have label 0 or 1."""


@dataclass(frozen=True)
class Sample:
    """People in an order that depends on their data only, not on their ids, and is blind to the attribute.

    Searches break ties by position in this order. Data that need no attribute are computed once.

    Attributes
    ----------
    rows
        Row number in the finder, (n,) int64.
    vectors
        Vectors of the finder, (n, d) float32.
    unfavourable
        Whether each person was decided unfavourably, (n,).
    metric
        Metric of the finder, by which people are compared.
    before
        Decisions of another model about the same people, (n,), whose logit joins the null model; or None.
    near
        Nearest people of either group, (n, k), by k.
    """

    rows: Ints
    vectors: NDArray[np.float32]
    unfavourable: Bools
    metric: Metric
    before: Bools | None = None
    near: dict[int, Ints] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows)

    def index_by(self, labels: Bools) -> IndexEvidenceFlat:
        """Return an exact index with these labels as classes and positions as ids."""
        index = IndexEvidenceFlat(self.vectors.shape[1], metric=self.metric)
        index.add_with_labels(self.vectors, labels.astype(np.int32))
        return index

    @cached_property
    def index(self) -> IndexEvidenceFlat:
        """Exact index with the decisions as classes."""
        return self.index_by(self.unfavourable)

    @cached_property
    def basis(self) -> Floats:
        """Columns of the null model, see :func:`cfe_faiss.audit.direct_test.basis`."""
        return direct_test.basis(self.vectors, *self._decisions)

    @property
    def _decisions(self) -> list[Bools]:
        return [decisions for decisions in (self.before, self.unfavourable) if decisions is not None]

    @cached_property
    def pairs(self) -> tuple[Ints, Ints, NDArray[Any]]:
        """The most similar pairs with different decisions, chosen greedily, each person in at most one.

        Positions of the unfavourable and of the other side, and the similarity or distance.
        """
        found = global_evidence(self.index, max(1, len(self) // 5), where=Constraints(replace=False))
        both = np.stack([found.source, found.target])
        refused, granted = np.where(self.unfavourable[found.source], both, both[::-1])
        return refused, granted, measured(found.similarity, self.metric)

    def neighbours(self, k: int, positions: Ints | None = None) -> Ints:
        """Return the k nearest people of either group, (n, k), without the person."""
        positions = np.arange(len(self)) if positions is None else positions
        found = self.index.search(self.vectors[positions], k + 1, params=EvidenceParameters(labels=ANY_LABEL))
        return drop_self(*found, positions)[1]

    def obstacle(self, carries: Bools) -> str:
        """Return why this value cannot be tested; empty if it can."""
        n, carriers = len(self), int(carries.sum())
        least = direct_test.LEAST_GROUP
        if min(carriers, n - carriers) < least:
            return f"{carriers} carry the value and {n - carriers} do not, fewer than {least}"
        if any(decisions.all() or not decisions.any() for decisions in self._decisions):
            return "all decisions are alike"
        varying = int((self.vectors != self.vectors[0]).any(axis=0).sum())
        if not varying:
            return "all vectors are alike"
        if 10 * varying > n:
            return f"{varying} dimensions are more than a tenth of {n} people"
        columns = 0 if self.before is None else self.basis.shape[1]
        return f"{columns} columns of the null model are more than half of {n} people" if 2 * columns > n else ""

    def test(
        self, carries: Bools, contrasts: Sequence[Floats], others: Sequence[Bools] = ()
    ) -> tuple[Floats, list[ScoreTest]]:
        """Return the propensity of carrying the value, NaN if it cannot be tested, and a test of each contrast.

        The carriers of other values, (n,) each, join the null model.
        """
        if reason := self.obstacle(carries):
            return np.full(len(self), np.nan), [ScoreTest(reason=reason)] * len(contrasts)
        basis = np.column_stack([self.basis, *others])
        chance = direct_test.propensity(basis, carries)
        return chance, direct_test.score_tests(basis, carries, chance, contrasts)

    def situation_contrast(self, k: int) -> Floats:
        """Return each decision minus the mean decision of the k nearest people, (n,)."""
        if k not in self.near:
            self.near[k] = self.neighbours(min(k, len(self) - 1)) if len(self) > 1 else np.arange(len(self))[:, None]
        contrast: Floats = self.unfavourable - self.unfavourable[self.near[k]].mean(axis=1)
        return contrast

    def decided_by(self, labels: NDArray[np.int32], unfavourable: NDArray[np.int32]) -> "Sample":
        """Return the same people, decided by another model, with the neighbours that are known."""
        return replace(self, unfavourable=np.isin(labels[self.rows], unfavourable), before=self.unfavourable)

    @cached_property
    def evidence_contrast(self) -> Floats:
        """1 for the unfavourable side of each pair, -1 for the other side, 0 for people in no pair, (n,)."""
        contrast = np.zeros(len(self))
        contrast[self.pairs[0]], contrast[self.pairs[1]] = 1, -1
        return contrast


@dataclass(frozen=True)
class Samples:
    """Samples of the people with a known value; attributes with the same people share one sample.

    Attributes
    ----------
    rows
        Row numbers in the finder, ascending, (n,) int64.
    unfavourable
        Numbers of the unfavourable classes.
    others
        Classes of all rows by other models.
    """

    finder: EvidenceFinder
    rows: Ints
    unfavourable: NDArray[np.int32]
    others: Sequence[NDArray[np.int32]] = ()
    by_people: dict[bytes, Sample] = field(default_factory=dict)

    def of(self, group: Grouping) -> tuple[Sample, Ints]:
        """Return the people whose code is not -1, and the code of each of them."""
        known = group.codes != UNKNOWN
        key = known.tobytes()
        if key not in self.by_people:
            self.by_people[key] = self._shuffle(self.rows[known])
        people = self.by_people[key]
        return people, group.codes[np.searchsorted(self.rows, people.rows)]

    def _shuffle(self, rows: Ints) -> Sample:
        """Return rows in an order that depends on the set of rows, not on their order.

        It depends on attributes only among people with equal vectors and decisions. There, the seed is drawn from all
        data, so that who comes first is no function of the attribute.
        """
        vectors, labels, attributes = self.finder.vectors[rows], self.finder.labels, attributes_of(self.finder)
        unfavourable, places = np.isin(labels[rows], self.unfavourable), attributes.rows(rows)
        codes = (attribute.codes[places] for attribute in attributes.values())
        keys = [unfavourable, *(own[rows] for own in (labels, *self.others)), *codes]
        order = canonical_order(vectors, *keys)
        ordered = vectors[order]
        has_ties = (ordered[1:] == ordered[:-1]).all(axis=1).any()
        seed = _digest(ordered, *(key[order] for key in keys)) if has_ties else _SEED
        order = order[np.random.default_rng(seed).permutation(len(rows))]
        return Sample(rows[order], vectors[order], unfavourable[order], self.finder.metric)


def _digest(*arrays: NDArray[Any]) -> int:
    return zlib.crc32(b"".join(array.tobytes() for array in arrays))


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
    group = groupings(attributes_of(finder), rows, single, bins, crossed, with_missing=False)[0]
    given, wanted = codes_of(values[0], group, values[1])
    people, codes = Samples(finder, rows, bad).of(group)
    carries = np.isin(codes, wanted)
    fields = {
        "attribute": group.name,
        "value": tuple(given),
        "unfavourable": tuple(finder.class_name(int(label)) for label in bad),
        "n_carriers": int(carries.sum()),
        "n_others": int((~carries).sum()),
        "unknown": len(rows) - len(people),
    }
    return people, carries, fields


def codes_of(argument: str, group: Grouping, values: Any) -> tuple[list[str], list[int]]:
    """Return the names of some values of an attribute, and their codes.

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
        check_known(f"{argument} must be among the values of {group.name!r}", name, group.values)
    return names, [group.values.index(name) for name in names]


def _name(value: Any) -> str:
    """Return the group name of a value: integers have no decimal point."""
    is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    return f"{value:.0f}" if is_number and float(value).is_integer() else str(value)
