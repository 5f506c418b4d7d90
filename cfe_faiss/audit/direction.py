"""Direction test: which side of the closest pairs with different decisions carries a value."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cfe_faiss.audit import direct_test
from cfe_faiss.audit.direct_test import ScoreTest
from cfe_faiss.audit.groups import DEFAULT_BINS, Bins
from cfe_faiss.audit.sample import question
from cfe_faiss.audit.tables import Frame, data_frame, limits_of
from cfe_faiss.base.checks import as_number
from cfe_faiss.base.threads import single_threaded_blas
from cfe_faiss.finder import EvidenceFinder
from cfe_faiss.finder.results import as_html

LIMITS = limits_of("direct_tests")


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class DirectTest(ScoreTest):
    """Common part of the results of :func:`direction_test` and :func:`situation_test`."""

    attribute: str
    value: tuple[str, ...]
    unfavourable: tuple[str, ...]
    n_carriers: int
    n_others: int
    unknown: int
    verdict: str
    limits: tuple[str, ...] = LIMITS

    def __repr__(self) -> str:
        answer = f"cannot tell, {self.reason}" if self.reason else f"{self.verdict}, p={self.p_value:.2g}"
        few = ", few decisive carriers" if self.few else ""
        return f"{type(self).__name__}({self.attribute} = {' or '.join(self.value)}: {answer}{few})"


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class DirectionTest(DirectTest):
    """Result of :func:`direction_test`; see :class:`cfe_faiss.audit.SituationTest` for the other direct test.

    Attributes
    ----------
    attribute, value, unfavourable, n_carriers, n_others, unknown
        Attribute, the values that make a carrier, the unfavourable classes by name, and numbers of people who carry a
        value, who do not, and whose value is missing.
    statistic, p_value, n_effective, few, verdict, reason
        z, positive where carriers are disadvantaged; its two-sided p value; effective number of decisive carriers, and
        whether it is below 10; "disadvantaged", "advantaged", "no finding" or "cannot tell", and why not.
    effect
        ``(against - expected) / (against + in_favour)``; NaN without discordant pairs.
    against, in_favour
        Discordant pairs: exactly one side carries the value. Its side has the unfavourable decision, or the other one.
    expected
        Pairs against the carrier that the vectors explain.
    gamma
        Largest odds of a hidden difference within the discordant pairs at which the finding stands; 1 is fragile. NaN
        without a finding.
    pairs
        One line per pair, most similar first: ``unfavourable``, ``favourable`` (ids of both sides), ``similarity``,
        ``unfavourable_carries``, ``favourable_carries``.
    limits
        Limits of the numbers, in sentences.
    """

    against: int
    in_favour: int
    expected: float
    gamma: float
    pairs: Frame

    def _repr_html_(self) -> str:
        return as_html(repr(self), self.pairs)


@single_threaded_blas()
def direction_test(
    finder: EvidenceFinder,
    *,
    attribute: str | Sequence[str],
    value: Any,
    unfavourable: Any,
    nodes: ArrayLike | None = None,
    alpha: float = 0.05,
    bins: Bins = DEFAULT_BINS,
) -> DirectionTest:
    """Test whether the carriers of a value stand on one side of the closest pairs with different decisions.

    The pairs are chosen by vectors and decisions alone: the most similar first, each person in one pair, at most a
    fifth as many pairs as people. The test asks whether the unfavourable side carries the value more often than the
    vectors explain.

    Parameters
    ----------
    finder
        Its searched rows are tested. It must know their attributes.
    attribute
        Name of an attribute, or several names: values of their intersection read "f & 18-35".
    value
        The value whose carriers are compared with all others, or a collection of values.
    unfavourable
        The class that counts as unfavourable, or a collection of classes; names or numbers.
    nodes
        Ids of the rows to test, or a mask; held-out people, say. By default all searched rows.
    alpha
        Largest p value of a finding, in (0, 1).
    bins
        How numbers with more than 10 values become groups, see :func:`cfe_faiss.audit.groups.groupings`.

    Returns
    -------
    DirectionTest
        With the pairs as a frame.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    Notes
    -----
    Score test of a contrast (1 for the unfavourable side of a pair, -1 for the other) in a ridge-logistic regression of
    carrying the value on a basis of the vectors [1]_. People with a missing value are left out first. Ties are broken
    by a fixed seed. The result does not depend on the order of rows, except among people with identical vectors.
    O(n^2 d) for the pairs, O(n d^2) for the test.

    References
    ----------
    .. [1] Rao, "Large sample tests of statistical hypotheses concerning several parameters", Proceedings of the
       Cambridge Philosophical Society 44, 1948. ``gamma``: Rosenbaum, "Observational Studies", 2002, chapter 4.

    Examples
    --------
    >>> import cfe_faiss as cfe
    >>> rng = np.random.default_rng(0)
    >>> X, sex = rng.standard_normal((600, 4)), rng.choice(["f", "m"], 600)
    >>> granted = X[:, 0] > np.where(sex == "f", 0.5, 0)
    >>> finder = cfe.EvidenceFinder.from_vectors(X, granted.astype(int), features={"sex": sex})
    >>> direction_test(finder, attribute="sex", value="f", unfavourable=0).verdict
    'disadvantaged'
    """
    alpha = as_number("alpha", alpha, 0, 1)
    people, carries, fields = question(finder, attribute, ("value", value), unfavourable, nodes, bins)
    refused, granted, similarity = people.pairs
    chance, (test,) = people.test(carries, [people.evidence_contrast])
    fields |= asdict(test) | asdict(direct_test.pair_counts(refused, granted, carries, chance, alpha))
    fields["verdict"] = direct_test.verdict(test.statistic, test.p_value, alpha)
    if fields["verdict"] not in direct_test.FINDINGS:
        fields["gamma"] = np.nan
    sides = {"unfavourable": refused, "favourable": granted}
    pairs: dict[str, Any] = {side: finder.names(people.rows[own]) for side, own in sides.items()}
    pairs |= {"similarity": similarity} | {f"{side}_carries": carries[own] for side, own in sides.items()}
    return DirectionTest(**fields, pairs=data_frame(pairs))
