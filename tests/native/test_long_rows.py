"""Rows of so many dimensions that a product of bytes of 127 each does not fit into 32 bits: float64 decides."""

import os
from pathlib import Path

import pytest
from reference import output_of

from cfe_faiss import _native

DIMENSIONS = "131072", "140000", "300000"
# A list of rows in pairs x and -x, whose mean is 0: bytes stand for the rows themselves. All components of the query
# and of the best rows have one size, so that each byte is the largest one. The first block gives thresholds that the
# best rows, in the second and third block, have to reach.
SEARCHES = """
import sys
import numpy as np
from stored_rows import rows_in
from cfe_faiss._native import Blocks

k = 6
for d in map(int, sys.argv[1:]):
    rng = np.random.default_rng(d)
    sign = rng.choice([-1.0, 1.0], d)
    half = np.where(np.arange(d) % 4 == 0, -sign, sign)  # a product of a half
    some = rng.normal(size=d)
    units = [row / np.linalg.norm(row) for row in (half, sign + 0.3 * some, sign, sign + 0.1 * some, some)]
    Y = np.concatenate([[x, -x] * 8 for x in units[:1]] + [[x, -x] * 3 for x in units[1:]]).astype(np.float32)
    n = len(Y)
    X = np.stack([units[2], units[1], -units[2]]).astype(np.float32)
    ids, labels = np.arange(100, 100 + n), np.ones(n, np.int32)
    rows, kept = rows_in([Y.view(np.uint8)], [ids], labels, d=d)
    nothing = [np.empty(0, kind) for kind in (np.int32, np.int64, np.float32, bool, bool)]
    blocks = Blocks(rows, "byte", (d + 16) * 2.0**-24, *nothing, np.empty((0, d), np.float32), 0, 1)
    S = X.astype(np.float64) @ Y.T.astype(np.float64)
    expected = np.sort(S)[:, : -k - 1 : -1]
    for groups in ([0, 3], [0, 1, 2, 3]):  # together, and each alone
        D, I = np.empty((3, k), np.float32), np.empty((3, k), np.int64)
        lists = np.zeros((len(groups) - 1, 1), np.int64)
        blocks.search(X, np.zeros(3, np.int32), np.array(groups), lists, np.arange(3), D, I)
        np.testing.assert_allclose(D, expected, rtol=0, atol=1e-6)
        np.testing.assert_allclose(np.take_along_axis(S, I - 100, 1), expected, rtol=0, atol=1e-6)
"""


@pytest.mark.skipif(not _native.has_bytes(), reason="no processor instructions for bytes")
@pytest.mark.parametrize("level", _native.available_levels())
def test_products_of_bytes_are_right_for_every_d(level: str) -> None:
    # Floats, which the generic level has in place of bytes, have no such limit: the smallest will do.
    searches, some = (
        (SEARCHES.replace('"byte"', '"float"'), 1) if level == "generic" else (SEARCHES, None)
    )
    path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    environment = {"CFE_SIMD": level, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": path}
    output_of(searches, *DIMENSIONS[:some], **environment)
