"""Train, validation and test nodes."""

from typing import Any

import numpy as np

from cfe_faiss.base.checks import as_count, as_labels
from cfe_faiss.base.extras import extra

with extra("gnn"):
    import torch


def split_masks(y: Any, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Split nodes at random into train, validation and test: 50, 25 and 25 percent of every class.

    The members of each class are shuffled and dealt out in turn, so a class of one node has it in train, and one of
    three or more nodes appears in all three masks. The global random state is neither used nor changed.

    Parameters
    ----------
    y
        Classes, shape (n,), integers of at least 0.
    seed
        At least 0. The same seed gives the same masks.

    Returns
    -------
    tuple of torch.Tensor
        Three masks, each (n,) bool; every node is in exactly one.

    Raises
    ------
    TypeError
        If y or the seed are not integers.
    ValueError
        If y is not one-dimensional, or a value of y or the seed is negative.

    Examples
    --------
    >>> train, val, test = split_masks([0, 1] * 4)
    >>> int(train.sum()), int(val.sum()), int(test.sum())
    (4, 2, 2)
    """
    labels = as_labels("y", y, len(y))
    order = np.random.default_rng(as_count("seed", seed, 0)).permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    classes = labels[order]
    place_in_class = np.arange(len(classes)) - np.searchsorted(classes, classes)
    part = np.empty(len(labels), dtype=np.int64)
    part[order] = np.array([0, 1, 2, 0])[place_in_class % 4]
    parts = torch.from_numpy(part)
    return parts == 0, parts == 1, parts == 2
