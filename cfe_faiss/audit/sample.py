"""People whose decisions are tested, with their neighbours and closest pairs. Nothing here depends on the attribute."""

import zlib
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.attributes.constraints import Constraints
from cfe_faiss.audit import direct_test
from cfe_faiss.audit.direct_test import ScoreTest
from cfe_faiss.audit.evidence import attributes_of, canonical_order, known_rows, persons_of
from cfe_faiss.audit.groups import Bins, Grouping, groupings
from cfe_faiss.audit.tables import Bools, Floats, Ints
from cfe_faiss.base.checks import UNKNOWN, as_names, check_known
from cfe_faiss.base.extras import extra
from cfe_faiss.base.threads import single_threaded_blas
from cfe_faiss.finder import EvidenceFinder
from cfe_faiss.index.flat import IndexEvidenceFlat
from cfe_faiss.pairs import global_evidence
from cfe_faiss.rows.metric import Metric, measured

_SEED = 20
_MANY_ROWS = 5_000


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
    persons
        Person of each row, (n,), numbered from 0 by their first row. A person counts once, however many rows it has;
        rows of one person are neither neighbours nor a pair.
    before
        Decisions of another model about the same people, (n,), whose logit joins the null model; or None.
    near
        Nearest people of either group, (n, k), by k.
    """

    rows: Ints
    vectors: NDArray[np.float32]
    unfavourable: Bools
    metric: Metric
    persons: Ints
    before: Bools | None = None
    near: dict[int, Ints] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows)

    def count(self, rows: Bools) -> int:
        """Return the number of different persons in some rows."""
        return len(np.unique(self.persons[rows]))

    @cached_property
    def most_rows(self) -> int:
        """Largest number of rows of one person."""
        return int(np.bincount(self.persons).max(initial=1))

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
        with self._threads():
            return direct_test.basis(self.vectors, *self._decisions, persons=self.persons)

    def _threads(self) -> AbstractContextManager[None]:
        """Limit BLAS to one thread for few rows: waiting for threads would take longer than small products."""
        return single_threaded_blas() if len(self) < _MANY_ROWS else nullcontext()

    @property
    def _decisions(self) -> list[Bools]:
        return [decisions for decisions in (self.before, self.unfavourable) if decisions is not None]

    @cached_property
    def pairs(self) -> tuple[Ints, Ints, NDArray[Any]]:
        """The most similar pairs with different decisions, chosen greedily, each person in at most one.

        Positions of the unfavourable and of the other side, and the similarity or distance.
        """
        where = Constraints(replace=False, antiexact=["person"] if self.most_rows > 1 else [])
        found = global_evidence(self.index, max(1, len(self) // 5), where=where, attributes={"person": self.persons})
        both = np.stack([found.source, found.target])
        is_first = _first_of_each(self.persons[both])
        both = both[:, is_first]
        refused, granted = np.where(self.unfavourable[both[0]], both, both[::-1])
        return refused, granted, measured(found.similarity[is_first], self.metric)

    def neighbours(self, k: int, positions: Ints | None = None) -> Ints:
        """Return the k nearest rows of other people of either group, (n, k); fewer if there are no k others."""
        positions = np.arange(len(self)) if positions is None else positions
        k = max(1, min(k, len(self) - self.most_rows))
        return self.others(self.index, positions, k, "any")[1]

    def others(
        self, index: IndexEvidenceFlat, positions: Ints, k: int, neighbors: Literal["own", "other", "any"]
    ) -> tuple[NDArray[np.float32], Ints]:
        """Return the k nearest rows of other people in an index of this sample; -1 where there are fewer."""
        D, I = index.search_stored(positions, k + self.most_rows - 1, neighbors=neighbors)
        I = np.where(self.persons[I] == self.persons[positions][:, None], -1, I)
        order = np.argsort(I < 0, axis=1, kind="stable")[:, :k]
        return np.take_along_axis(D, order, axis=1), np.take_along_axis(I, order, axis=1)

    def obstacle(self, carries: Bools) -> str:
        """Return why this value cannot be tested; empty if it can."""
        n = int(self.persons.max(initial=-1)) + 1
        carriers, others = self.count(carries), self.count(~carries)
        least = direct_test.LEAST_GROUP
        if min(carriers, others) < least:
            if carriers < others:
                return f"fewer than {least} people carry the value: {carriers:,}"
            return f"fewer than {least} people do not carry the value: {others:,}"
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
        with self._threads():
            chance = direct_test.propensity(basis, carries)
            return chance, direct_test.score_tests(basis, carries, chance, contrasts, self.persons)

    def situation_contrast(self, k: int) -> Floats:
        """Return each decision minus the mean decision of the k nearest people, (n,)."""
        if k not in self.near:
            self.near[k] = self.neighbours(k) if len(self) > 1 else np.arange(len(self))[:, None]
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
    persons
        Person of each row of the finder, see :func:`cfe_faiss.audit.evidence.persons_of`.
    others
        Classes of all rows by other models.
    """

    finder: EvidenceFinder
    rows: Ints
    unfavourable: NDArray[np.int32]
    persons: Ints
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
        with extra("audit"):
            import pandas as pd

        vectors, labels, attributes = self.finder.vectors[rows], self.finder.labels, attributes_of(self.finder)
        unfavourable, places = np.isin(labels[rows], self.unfavourable), attributes.rows(rows)
        codes = (attribute.codes[places] for attribute in attributes.values())
        keys = [unfavourable, *(own[rows] for own in (labels, *self.others)), *codes]
        order = canonical_order(vectors, *keys)
        ordered = vectors[order]
        has_ties = (ordered[1:] == ordered[:-1]).all(axis=1).any()
        seed = _digest(ordered, *(key[order] for key in keys)) if has_ties else _SEED
        order = order[np.random.default_rng(seed).permutation(len(rows))]
        rows = rows[order]
        persons = pd.factorize(self.persons[rows])[0]
        return Sample(rows, vectors[order], unfavourable[order], self.finder.metric, persons)


def _first_of_each(persons: Ints) -> Bools:
    """Return which pairs, (2, m), hold no person of an earlier one that is kept."""
    seen = set[int]()
    is_first = np.zeros(persons.shape[1], bool)
    for place, pair in enumerate(persons.T.tolist()):
        is_first[place] = seen.isdisjoint(pair)
        if is_first[place]:
            seen.update(pair)
    return is_first


def _digest(*arrays: NDArray[Any]) -> int:
    return zlib.crc32(b"".join(array.tobytes() for array in arrays))


def question(
    finder: EvidenceFinder,
    attribute: str | Sequence[str],
    values: tuple[str, Any],
    unfavourable: Any,
    nodes: Any,
    bins: Bins,
    person: Any,
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
    people, codes = Samples(finder, rows, bad, persons_of(finder, person)).of(group)
    carries = np.isin(codes, wanted)
    fields = {
        "attribute": group.name,
        "value": tuple(given),
        "unfavourable": tuple(finder.class_name(int(label)) for label in bad),
        "n_carriers": people.count(carries),
        "n_others": people.count(~carries),
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
