"""The compiled core (``native/``). Arrays are C-contiguous and of the type given here: nothing is converted."""

import numpy as np
from numpy.typing import NDArray

# --- instruction sets ---

def level() -> str:
    """Return the instruction set in use: "generic", "avx2", "avx512" or "neon"."""

def available_levels() -> list[str]:
    """Return the instruction sets that this machine can run, from the plainest to the best."""

# --- similarity ---

def pair_similarities(X: NDArray[np.float32], Y: NDArray[np.float32], result: NDArray[np.float32]) -> None:
    """Write the similarity of each row of X with the same row of Y, (n, d) both, to ``result``, (n,)."""
