"""Both direct tests for all values of several attributes, as one family of hypotheses."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cfe_faiss.audit import direct_test
from cfe_faiss.audit.direction import LIMITS
from cfe_faiss.audit.evidence import attributes_of, known_rows, sensitive_of
from cfe_faiss.audit.groups import DEFAULT_BINS, Bins, groupings
from cfe_faiss.audit.sample import Sample, Samples
from cfe_faiss.audit.tables import Bools, Floats, TableResult, data_frame
from cfe_faiss.base.checks import UNKNOWN, as_array, as_count, as_number
from cfe_faiss.base.threads import single_threaded_blas
from cfe_faiss.finder import EvidenceFinder

_COLUMNS = (
    *("attribute", "value", "test", "n_carriers", "n_others", "effect", "statistic", "p", "q", "n_effective", "few"),
    *("verdict", "reason", "against", "in_favour", "expected", "gamma", "named"),
)


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class DirectEffects(TableResult):
    """Direct tests of many values, adjusted together; made by :func:`direct_effects`.

    Attributes
    ----------
    table
        One line per value and test:

        - ``attribute``, ``value``; ``test``: "situation" or "direction".
        - ``n_carriers``, ``n_others``: people who carry the value, or another one.
        - ``effect``, ``statistic``, ``p``, ``n_effective``, ``few``: see :func:`direction_test` and
          :func:`situation_test`.
        - ``q``: p adjusted over the family; NaN, as p, where the verdict is "cannot tell".
        - ``verdict``: by ``q``. ``reason``: why the test cannot tell, or "".
        - ``against``, ``in_favour``, ``expected``: discordant pairs by the side of the carrier, and pairs against the
          carrier that the vectors explain; NaN for the situation test.
        - ``gamma``: Gamma of a named direction test, else NaN.
        - ``named``: whether the verdict is "disadvantaged" or "advantaged".
    others
        Adjusted p values of the further members of the family, by name.
    unfavourable
        Names of the classes that count as unfavourable.
    n, unknown
        People tested, and by attribute how many of them are left out because their value is missing.
    k, fdr
        As given.
    limits
        Limits of the numbers, in sentences.
    """

    others: Mapping[str, float]
    unfavourable: tuple[str, ...]
    n: int
    unknown: Mapping[str, int]
    k: int
    fdr: float

    def __repr__(self) -> str:
        told = int(self.table["p"].notna().sum())
        return f"DirectEffects({len(self)} tests, {told} can tell, {int(self.table['named'].sum())} named)"


def adjusted_p_values(p: ArrayLike) -> Floats:
    """Return p values adjusted by Benjamini and Hochberg; NaN stays NaN and does not count.

    Parameters
    ----------
    p
        P values, (m,), in [0, 1].

    Raises
    ------
    ValueError
        If a value is outside.

    Examples
    --------
    >>> adjusted_p_values([0.01, 0.04, np.nan, 0.5]).round(3)
    array([0.03, 0.06,  nan, 0.5 ])
    """
    from scipy.stats import false_discovery_control

    adjusted = as_array("p", p).astype(np.float64)
    if adjusted.ndim != 1 or ((adjusted < 0) | (adjusted > 1)).any():
        raise ValueError(f"p must have shape (m,) and lie in 0..1, got {adjusted.shape}, {adjusted[:8]}")
    known = ~np.isnan(adjusted)
    if known.any():
        adjusted[known] = false_discovery_control(adjusted[known])
    return adjusted


@single_threaded_blas()  # many small matrices: waiting for threads would take longer
def direct_effects(  # noqa: PLR0913
    finder: EvidenceFinder,
    *,
    sensitive: Sequence[str] | None = None,
    unfavourable: Any,
    intersections: Sequence[Sequence[str]] = (),
    bins: Bins = DEFAULT_BINS,
    nodes: ArrayLike | None = None,
    k: int = 10,
    fdr: float = 0.05,
    others: Mapping[str, float] | None = None,
) -> DirectEffects:
    """Run the situation test and the direction test for every value of the sensitive attributes.

    All tests that can tell form one family, also tests with large p values. Its false discovery rate is controlled
    [1]_.

    Parameters
    ----------
    finder, unfavourable, nodes, bins
        As in :func:`direction_test`.
    sensitive
        Names of attributes; by default ``finder.sensitive``.
    intersections
        Tuples of attributes whose combined values are tested, too.
    k
        Neighbours of the situation test, >= 1.
    fdr
        Largest adjusted p value of a finding, in (0, 1).
    others
        Further p values that belong to the family, by name; NaN where a test cannot tell.

    Returns
    -------
    DirectEffects
        With one line per value and test.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    Notes
    -----
    Neighbours, pairs and the basis of the null model are computed once for each set of people with a known value.

    References
    ----------
    .. [1] Benjamini and Hochberg, "Controlling the false discovery rate", JRSS B 57, 1995.

    Examples
    --------
    >>> import cfe_faiss as cfe
    >>> rng = np.random.default_rng(0)
    >>> X, sex = rng.standard_normal((600, 4)), rng.choice(["f", "m"], 600)
    >>> granted = X[:, 0] > np.where(sex == "f", 0.5, 0)
    >>> finder = cfe.EvidenceFinder.from_vectors(X, granted.astype(int), features={"sex": sex})
    >>> effects = direct_effects(finder, sensitive=["sex"], unfavourable=0)
    >>> effects.table[["value", "test", "verdict"]]
      value       test        verdict
    0     f  situation  disadvantaged
    1     f  direction  disadvantaged
    2     m  situation     advantaged
    3     m  direction     advantaged
    """
    k, fdr = as_count("k", k), as_number("fdr", fdr, 0, 1)
    names = sensitive_of(finder, sensitive)
    bad = finder.class_numbers("unfavourable", unfavourable)
    rows = known_rows(finder, nodes)
    groups = groupings(attributes_of(finder), rows, names, bins, intersections, with_missing=False)
    if not groups:
        raise ValueError("sensitive must name attributes where finder.sensitive names none, got none")
    samples, lines = Samples(finder, rows, bad), list[dict[str, Any]]()
    for group in groups:
        people, codes = samples.of(group)
        for code in np.unique(codes):
            value = {"attribute": group.name, "value": group.values[code]}
            lines += [value | line for line in _lines(people, k, codes == code, fdr)]
    further = {
        str(name): as_number(f"others[{name!r}]", p, 0, 1) if p == p else p for name, p in (others or {}).items()
    }
    q = adjusted_p_values([*(line["p"] for line in lines), *further.values()])
    for line, adjusted in zip(lines, q.tolist(), strict=False):
        direct_test.judge(line, adjusted, fdr)
        line["gamma"] = line["gamma"] if line["named"] else np.nan
    return DirectEffects(
        table=data_frame(lines, _COLUMNS),
        limits=LIMITS,
        others=dict(zip(further, q[len(lines) :].tolist(), strict=True)),
        unfavourable=tuple(finder.class_name(int(label)) for label in bad),
        n=len(rows),
        unknown={group.name: int((group.codes == UNKNOWN).sum()) for group in groups},
        k=k,
        fdr=fdr,
    )


def _lines(people: Sample, k: int, carries: Bools, fdr: float) -> Iterator[dict[str, Any]]:
    """Yield the situation test and the direction test of one value."""
    chance, tests = people.test(carries, [people.situation_contrast(k), people.evidence_contrast])
    counts = asdict(direct_test.pair_counts(*people.pairs[:2], carries, chance, fdr))
    no_pairs = dict.fromkeys(("against", "in_favour", "expected", "gamma"), np.nan)
    for name, test, pairs in (("situation", tests[0], no_pairs), ("direction", tests[1], counts)):
        numbers = {"test": name, "n_carriers": int(carries.sum()), "n_others": int((~carries).sum())}
        yield numbers | {"p": test.p_value, "few": test.few} | asdict(test) | pairs
