"""Situation test: people compared with their nearest neighbours."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cfe_faiss.audit.direct_test import verdict
from cfe_faiss.audit.direction import DirectTest
from cfe_faiss.audit.evidence import drop_self
from cfe_faiss.audit.groups import DEFAULT_BINS, Bins
from cfe_faiss.audit.sample import ANY_LABEL, Sample, question
from cfe_faiss.audit.tables import Bools, Floats, Frame, data_frame, share
from cfe_faiss.base.checks import as_count, as_number
from cfe_faiss.base.threads import single_threaded_blas
from cfe_faiss.finder import EvidenceFinder
from cfe_faiss.finder.results import table_html
from cfe_faiss.index.parameters import EvidenceParameters

_ROUNDING = 1e-12  # differences of shares that miss the threshold by less reach it
_DRAWS, _DRAWN_ROWS, _DEPTH = 100, 1_000, 2_000  # of the attribute, for `expected`


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class SituationTest(DirectTest):
    """Result of :func:`situation_test`; see :class:`cfe_faiss.audit.DirectionTest` for the other direct test.

    Attributes
    ----------
    attribute, value, unfavourable, n_carriers, n_others, unknown
        Attribute, the protected values, the unfavourable classes by name, and numbers of people who carry a protected
        value, who do not, and whose value is missing.
    statistic, p_value, n_effective, few, verdict, reason
        z, positive where carriers are disadvantaged; its two-sided p value; effective number of decisive carriers, and
        whether it is below 10; "disadvantaged", "advantaged", "no finding" or "cannot tell", and why not.
    effect
        Difference of the share decided unfavourably, carriers minus others of equal propensity, beyond their nearest
        neighbours.
    share_carriers, share_others
        Share decided unfavourably in either group, not adjusted for the vectors.
    k, threshold
        As given.
    flagged, judged, expected
        Description after Luong et al.: of the ``judged`` carriers with an unfavourable decision ``flagged`` are flagged
        in ``table``. ``expected`` is the share flagged if the value were drawn from its propensity given the vectors;
        NaN where the test cannot tell. It has no p value: the claim is ``verdict``.
    table
        One line per carrier: ``node`` (id), ``label``; ``n_protected``, ``unfavourable_protected``, ``n_rest``,
        ``unfavourable_rest``: nearest people of both groups, and how many of them are decided unfavourably;
        ``difference`` of the two shares, NaN where a group has no other person; ``similarity_protected``,
        ``similarity_rest``: mean similarity; ``flagged``: decided unfavourably, and the difference reaches the
        threshold.
    limits
        Limits of the numbers, in sentences.
    """

    share_carriers: float
    share_others: float
    k: int
    threshold: float
    flagged: int
    judged: int
    expected: float
    table: Frame

    _repr_html_ = table_html

    def __len__(self) -> int:
        return len(self.table)


@single_threaded_blas()
def situation_test(  # noqa: PLR0913
    finder: EvidenceFinder,
    *,
    attribute: str | Sequence[str],
    protected: Any,
    unfavourable: Any,
    k: int = 10,
    nodes: ArrayLike | None = None,
    threshold: float = 0.1,
    alpha: float = 0.05,
    bins: Bins = DEFAULT_BINS,
) -> SituationTest:
    """Test whether carriers are decided worse than their nearest neighbours, beyond what the vectors explain.

    The test compares each person's decision with the decisions of the k nearest people of either group. The table
    describes each carrier as situation testing does [1]_: with the k nearest people of both groups.

    Parameters
    ----------
    finder, attribute, unfavourable, nodes, alpha, bins
        As in :func:`direction_test`.
    protected
        The value that makes the protected group, or a collection of values; everyone else with a value is the rest.
    k
        Neighbours, >= 1, without the person; fewer in smaller groups.
    threshold
        Smallest difference of shares that flags a person in the table, in [0, 1].

    Returns
    -------
    SituationTest
        With a table of the carriers.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    Notes
    -----
    The same score test as in :func:`direction_test`, of the contrast "own decision less the mean decision of the k
    nearest". People with a missing value are left out first; neighbours are found exactly, ties are broken by a fixed
    seed. O(n^2 d) for the neighbours, O(n d^2) for the test.

    References
    ----------
    .. [1] Luong, Ruggieri and Turini, "k-NN as an implementation of situation testing for discrimination discovery and
       prevention", KDD 2011.

    Examples
    --------
    >>> import cfe_faiss as cfe
    >>> rng = np.random.default_rng(0)
    >>> X, sex = rng.standard_normal((600, 4)), rng.choice(["f", "m"], 600)
    >>> granted = X[:, 0] > np.where(sex == "f", 0.5, 0)
    >>> finder = cfe.EvidenceFinder.from_vectors(X, granted.astype(int), features={"sex": sex})
    >>> situation_test(finder, attribute="sex", protected="f", unfavourable=0).verdict
    'disadvantaged'
    """
    k, alpha = as_count("k", k), as_number("alpha", alpha, 0, 1)
    threshold = as_number("threshold", threshold, 0, 1)
    people, carries, fields = question(finder, attribute, ("protected", protected), unfavourable, nodes, bins)
    chance, (test,) = people.test(carries, [people.situation_contrast(k)])
    table = _table(finder, people, carries, k, threshold)
    judged = table[people.unfavourable[carries] & table["difference"].notna().to_numpy()]
    return SituationTest(
        **fields,
        **asdict(test),
        verdict=verdict(test.statistic, test.p_value, alpha),
        share_carriers=float(share(people.unfavourable[carries].sum(), carries.sum())),
        share_others=float(share(people.unfavourable[~carries].sum(), (~carries).sum())),
        k=k,
        threshold=threshold,
        flagged=int(judged["flagged"].sum()),
        judged=len(judged),
        expected=np.nan if test.reason else _expected_share(people, chance, k, threshold),
        table=table.sort_values("node", ignore_index=True),
    )


def _table(finder: EvidenceFinder, people: Sample, carries: Bools, k: int, threshold: float) -> Frame:
    """Return Luong's table: each carrier with the k nearest people of both groups."""
    carriers = np.flatnonzero(carries)
    rows, by_group = people.rows[carriers], people.index_by(carries)
    columns: dict[str, Any] = {"node": finder.names(rows), "label": finder.labels[rows]}
    shares, similarities = [], {}
    for group, name in ((True, "protected"), (False, "rest")):
        only = EvidenceParameters(labels=ANY_LABEL, targets=[int(group)])
        D, I = drop_self(*by_group.search(people.vectors[carriers], k + 1, params=only), carriers)
        found = I >= 0
        n = columns[f"n_{name}"] = found.sum(axis=1)
        bad = columns[f"unfavourable_{name}"] = (people.unfavourable[I] & found).sum(axis=1)
        shares.append(share(bad, n))
        similarities[f"similarity_{name}"] = share(np.where(found, D, 0).sum(axis=1), n)
    difference = shares[0] - shares[1]
    flagged = people.unfavourable[carriers] & (difference >= threshold - _ROUNDING)
    return data_frame({**columns, "difference": difference, **similarities, "flagged": flagged})


def _expected_share(people: Sample, chance: Floats, k: int, threshold: float) -> float:
    """Return the mean share of flagged carriers with an unfavourable decision if the value is drawn by its propensity.

    Neighbours are searched once, for a sample of the people, so deep that both groups are likely to have k among them.
    """
    rng = np.random.default_rng(0)
    refused = np.flatnonzero(people.unfavourable)
    refused = np.sort(rng.choice(refused, min(_DRAWN_ROWS, len(refused)), replace=False))
    rarer = min(chance.mean(), 1 - chance.mean())
    neighbours = people.neighbours(int(min(len(people) - 1, _DEPTH, 8 * k / rarer)), refused)
    shares = []
    for _ in range(_DRAWS):
        drawn = rng.random(len(people)) < chance
        near = neighbours[drawn[refused]]
        flags = _flags(drawn[near], people.unfavourable[near], k, threshold)
        if len(flags):
            shares.append(flags.mean())
    return float(np.mean(shares)) if shares else np.nan


def _flags(carries: Bools, unfavourable: Bools, k: int, threshold: float) -> Bools:
    """Return which people are flagged, given their neighbours (m, depth), of those with neighbours in both groups."""
    shares = []
    for group in (carries, ~carries):
        first = group & (np.cumsum(group, axis=1, dtype=np.int32) <= k)
        shares.append(share((first & unfavourable).sum(axis=1), first.sum(axis=1)))
    difference = shares[0] - shares[1]
    flags: Bools = difference[~np.isnan(difference)] >= threshold - _ROUNDING
    return flags
