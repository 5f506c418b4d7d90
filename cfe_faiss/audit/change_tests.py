"""Tests of a change between two models: the rate of each group, and the direct effects of each value."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.audit.direct_test import ScoreTest
from cfe_faiss.audit.evidence_changes import Models
from cfe_faiss.audit.groups import Grouping
from cfe_faiss.audit.intervals import paired_difference
from cfe_faiss.audit.sample import Sample, Samples
from cfe_faiss.audit.tables import Bools, Ints
from cfe_faiss.base.checks import UNKNOWN
from cfe_faiss.base.threads import single_threaded_blas

LEAST_MOVED = 6
"""With fewer people who moved, even if all of them moved one way, the exact p value is above .05."""
_Line = dict[str, Any]


def paired_test(worse: int, better: int) -> ScoreTest:
    """Return McNemar's exact test of "as many people moved one way as the other"; positive: more of them ``worse``."""
    from scipy.stats import binom

    moved = worse + better
    if moved < LEAST_MOVED:
        return ScoreTest(n_effective=moved, reason=f"{moved} people who moved are fewer than {LEAST_MOVED}")
    p = min(1.0, 2 * float(binom.cdf(min(worse, better), moved, 0.5)))
    return ScoreTest(statistic=(worse - better) / math.sqrt(moved), p_value=p, n_effective=moved)


def change_of_rates(
    models: Models, rows: Ints, bad: NDArray[np.int32], groups: Sequence[Grouping], confidence: float
) -> Iterator[_Line]:
    """Yield the change of the rate of each group, with its test, for each model but the first."""
    was, *others = (np.isin(labels[rows], bad) for labels in models.values())
    for (name, now), group in product(zip(list(models)[1:], others, strict=True), groups):
        masks = {"n": was | True, "before": was, "after": now, "worse": now & ~was, "better": was & ~now}
        known, size = group.codes != UNKNOWN, len(group.values)
        count = {key: np.bincount(group.codes[known & mask], minlength=size) for key, mask in masks.items()}
        each = confidence ** (1 / max(int((count["n"] > 0).sum()), 1))
        low, high = paired_difference(count["worse"], count["better"], count["n"], each)
        for g in np.flatnonzero(count["n"]).tolist():
            own: _Line = {key: int(values[g]) for key, values in count.items()}
            test = paired_test(own["worse"], own["better"])
            own |= {key: own[key] / own["n"] for key in ("before", "after")}
            own |= {"effect": own["after"] - own["before"], "low": low[g], "high": high[g], "few": False}
            yield _line(name, group, g, "rates", test) | own


def change_of_effects(samples: Samples, models: Models, groups: Sequence[Grouping], k: int) -> Iterator[_Line]:
    """Yield the changes of the direct effects of each value. People with the same known values share a null model."""
    for name, labels in list(models.items())[1:]:
        decided: dict[int, Sample] = {}
        for group in groups:
            people, codes = samples.of(group)
            after = decided.setdefault(id(people), people.decided_by(labels, samples.unfavourable))
            for code in np.unique(codes).tolist():
                tests = _tests_of(people, after, codes == code, k)
                for test, found in zip(("situation", "direction"), tests, strict=True):
                    yield _line(name, group, code, test, found) | {"n": int((codes == code).sum()), "few": found.few}


@single_threaded_blas()  # many small matrices: waiting for threads would take longer
def _tests_of(before: Sample, after: Sample, carries: Bools, k: int) -> list[ScoreTest]:
    """Return the score tests of both contrasts, situation and evidence, of one model less the other."""
    change = after.situation_contrast(k) - before.situation_contrast(k)
    return after.test(carries, [change, after.evidence_contrast - before.evidence_contrast])[1]


def _line(model: str, group: Grouping, code: int, name: str, test: ScoreTest) -> _Line:
    place = {"model": model, "attribute": group.name, "value": group.values[code], "test": name, "p": test.p_value}
    return asdict(test) | place
