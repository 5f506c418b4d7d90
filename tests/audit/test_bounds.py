from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfe_faiss.audit.intervals import rate_bounds, ratio_bounds


def ways(total, groups):
    """Yield all ways to spread so many among the groups."""
    if groups == 1:
        yield (total,)
        return
    for first in range(total + 1):
        for rest in ways(total - first, groups - 1):
            yield (first, *rest)


@given(
    known=st.lists(
        st.tuples(st.integers(0, 4), st.integers(0, 4)).filter(any), min_size=1, max_size=3
    ),
    unknown_selected=st.integers(0, 3),
    fails=st.integers(0, 4),
    data=st.data(),
)
@settings(max_examples=60)
def test_bounds_are_sharp(known, unknown_selected, fails, data):
    g = len(known)
    selected = np.array([right for right, _ in known])
    nodes = selected + np.array([wrong for _, wrong in known])
    reference = data.draw(st.integers(0, g - 1))
    attained = [[] for _ in range(g)]
    rates = [[] for _ in range(g)]
    for right, wrong in product(ways(unknown_selected, g), ways(fails, g)):
        x, n = selected + np.array(right), nodes + np.array(right) + np.array(wrong)
        compared = x[reference] / n[reference]
        for group in range(g):
            rates[group].append(x[group] / n[group])
            if compared > 0 or x[group] > 0:
                attained[group].append(x[group] / n[group] / compared if compared > 0 else np.inf)
    least, most = ratio_bounds(
        selected, nodes, unknown_selected, unknown_selected + fails, reference
    )
    others = [group for group in range(g) if group != reference]
    assert (least[reference], most[reference]) == (1, 1)
    for group in others:
        if np.isinf(max(attained[group], default=np.inf)):  # the reference may have the rate 0
            assert np.isnan(most[group])
        else:
            bounds = min(attained[group]), max(attained[group])
            assert (least[group], most[group]) == pytest.approx(bounds, rel=1e-12)
    if g == 1:
        return
    low, high = rate_bounds(selected, nodes, unknown_selected, unknown_selected + fails)
    expected = [[min(own), max(own)] for own in rates]
    np.testing.assert_allclose(np.stack([low, high], axis=1), expected, rtol=1e-12)


def test_nothing_unknown_leaves_the_ratio():
    least, most = ratio_bounds(np.array([1, 3]), np.array([4, 4]), 0, 0, 1)
    assert least.tolist() == most.tolist() == pytest.approx([1 / 3, 1])


def test_a_group_that_nobody_is_known_to_belong_to_has_no_bounds():
    least, most = ratio_bounds(np.array([1, 0]), np.array([4, 0]), 1, 2, 0)
    assert np.isnan([least[1], most[1]]).all()
    assert (least[0], most[0]) == (1, 1)
