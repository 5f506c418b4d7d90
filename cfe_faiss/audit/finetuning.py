"""Fine-tuning of a model with the nodes of the global evidence. Torch is loaded on first use."""

from collections.abc import Sequence
from copy import copy, deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np

from cfe_faiss.audit.groups import Floats, Frame, Ints, check_finder, share
from cfe_faiss.audit.intervals import bootstrap_mean
from cfe_faiss.base.checks import UNKNOWN, as_count, as_labels, check_known
from cfe_faiss.base.extras import extra, pd
from cfe_faiss.base.values import as_ids
from cfe_faiss.finder import EvidenceFinder


@dataclass(frozen=True, slots=True)
class FineTuning:
    """Accuracies before and after fine-tuning.

    Attributes
    ----------
    runs
        One line per seed: ``seed``; ``tuned`` and ``nodes``, the numbers of evidence nodes and of
        remaining test nodes; ``before``, ``after`` and ``control``, accuracies on the remaining
        test nodes; ``fixed`` and ``broken``, how many of them are right only after, or only before.
        NaN where no test node remains.
    summary
        One line for each ``measure``, which is "before", "after", "control", "after - before" or
        "after - control": ``mean`` and ``std`` over the seeds (NaN for a single one); ``low`` and
        ``high``, a bootstrap interval of the mean over the nodes; ``nodes`` and ``seeds``, the
        numbers of both.
    """

    runs: Frame
    summary: Frame

    def __repr__(self) -> str:
        mean = dict(zip(self.summary["measure"], self.summary["mean"].astype(float), strict=True))
        means = ", ".join(
            f"{measure} {mean[measure]:.3f}" for measure in ("before", "after", "control")
        )
        counts = f"{len(self.runs)} seeds, {self.runs['tuned'].max():,} evidence nodes"
        return f"FineTuning({counts}, accuracy of {self.runs['nodes'].max():,} test nodes: {means})"


def fine_tune(  # noqa: PLR0913
    finder: EvidenceFinder,
    *,
    pairs: Any,
    role: str = "training",
    seeds: Sequence[int] = range(5),
    inplace: bool = False,
    epochs: int = 200,
    lr: float = 0.01,
    weight_decay: float = 5e-4,
    patience: int = 50,
    class_weights: bool = False,
    confidence: float = 0.95,
    progress: bool = False,
) -> FineTuning:
    """Go on training a model with the nodes of the evidence.

    The models before and after are compared on the test nodes that remain. See the paper's
    "Fine-tuning with Counterfactual Evidences"; :doc:`/how_to/fine_tuning` has both readings of it.

    Parameters
    ----------
    finder
        Its model is a trained ``torch.nn.Module``, called as ``model(x, edge_index)`` for logits.
        Its data is PyG ``Data`` with ``x``, ``edge_index``, ``y``, ``train_mask``, ``val_mask`` and
        ``test_mask``, on the same device.
    pairs
        The evidence, with row numbers ``source`` and ``target``, see
        :meth:`cfe_faiss.EvidenceFinder.top_pairs`.
    role
        "training": evidence nodes join the training nodes; "validation": they replace these nodes.
    seeds
        Each gives one run from the same weights; runs differ in the randomness of training only.
    inplace
        Whether the model ends with the weights of the first seed's run, and in evaluation mode.
    epochs, lr, weight_decay, patience, class_weights
        Of the training, see :func:`cfe_faiss.models.train`; its optimizer starts afresh.
    confidence
        Of the intervals, in (0, 1).
    progress
        Whether to show progress bars on standard error.

    Returns
    -------
    FineTuning
        Results per seed, and a summary.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, or nothing is left to validate on.
    ImportError
        If torch or pandas is missing.

    Notes
    -----
    ``control`` is the same training without the evidence nodes: fine-tuning gains
    ``after - control``. The test nodes that remain are easier than the test set. Nodes without a
    true class (-1) are left out.

    Examples
    --------
    >>> import cfe_faiss as cfe
    >>> from cfe_faiss.datasets import load
    >>> from cfe_faiss.models import gcn, train
    >>> data = load("patients")
    >>> model = gcn(data)
    >>> report = train(model, data)
    >>> finder = cfe.EvidenceFinder.from_data(data, model, nodes=data.test_mask)
    >>> result = fine_tune(finder, pairs=finder.top_pairs(10), seeds=[0], epochs=20)
    >>> bool(result.runs.loc[0, "nodes"] + result.runs.loc[0, "tuned"] == data.test_mask.sum())
    True
    """
    check_finder(finder)
    with extra("gnn"):
        from cfe_faiss.models import loop, predict

    model = finder.model
    data = finder.data
    loop.check(model, data)
    runs = [as_count("seeds", seed, 0) for seed in seeds]
    if not runs or len(set(runs)) < len(runs):
        raise ValueError(f"seeds must be one seed at least, each once, got {runs}")
    y = as_labels("data.y", data.y, len(data.x), unknown=True)
    evidence = _nodes(pairs, len(y))
    evidence = evidence[y[evidence] != UNKNOWN]
    tuning = _move_evidence(data, evidence, role)
    remaining = np.setdiff1d(
        np.flatnonzero(data.test_mask.cpu().numpy() & (y != UNKNOWN)), evidence
    )
    truth = y[remaining]

    def judge(of: Any) -> Any:
        return predict(of, data)[remaining] == truth

    def train_copy(on: Any, seed: int) -> Any:
        other = deepcopy(model)
        loop.train(
            other,
            on,
            epochs=epochs,
            lr=lr,
            weight_decay=weight_decay,
            patience=patience,
            class_weights=class_weights,
            seed=seed,
            progress=progress,
        )
        return other

    before = judge(model)
    tuned = [train_copy(tuning, seed) for seed in runs]
    after = np.array([judge(other) for other in tuned])
    control = np.array([judge(train_copy(data, seed)) for seed in runs])
    if inplace:
        model.load_state_dict(tuned[0].state_dict())
        model.eval()
    hits = {"before": np.broadcast_to(before, after.shape), "after": after, "control": control}
    measured = {name: right.astype(float) for name, right in hits.items()}
    columns: dict[str, Any] = {
        "seed": runs,
        "tuned": len(evidence),
        "nodes": len(remaining),
        **{name: share(right.sum(axis=1), len(remaining)) for name, right in measured.items()},
        "fixed": (after & ~before).sum(axis=1),
        "broken": (before & ~after).sum(axis=1),
    }
    for other in ("before", "control"):
        measured[f"after - {other}"] = measured["after"] - measured[other]
    lines = [_summary(name, values, confidence) for name, values in measured.items()]
    return FineTuning(pd.DataFrame(columns), pd.DataFrame(lines))


def _nodes(pairs: Any, n: int) -> Ints:
    """Return the nodes of the pairs, each once, ascending."""
    for name in ("source", "target"):
        if getattr(pairs, name, None) is None:
            raise TypeError(
                f"pairs must have {name}, as cfe_faiss.global_evidence gives, got "
                f"{type(pairs).__name__}"
            )
    nodes = np.union1d(as_ids("pairs.source", pairs.source), as_ids("pairs.target", pairs.target))
    if len(nodes) and nodes[-1] >= n:
        raise ValueError(f"pairs must be of nodes in 0..{n - 1}, got {nodes[-1]}")
    return nodes


def _move_evidence(data: Any, evidence: Ints, role: str) -> Any:
    """Return a copy of the graph whose evidence nodes are training or validation nodes only."""
    check_known("role must be one of", role, ("training", "validation"))
    tuning = copy(data)
    for name in ("train_mask", "val_mask", "test_mask"):
        mask = data[name].clone()
        if role == "validation" and name == "val_mask":
            mask[:] = False
        mask[evidence] = name == ("train_mask" if role == "training" else "val_mask")
        tuning[name] = mask
    return tuning


def _summary(name: str, values: Floats, confidence: float) -> dict[str, Any]:
    """Return one line about values in [-1, 1], (seeds, nodes)."""
    seeds, nodes = values.shape
    per_seed = share(values.sum(axis=1), nodes)
    bounds = (-1.0, 1.0) if " - " in name else (0.0, 1.0)
    low, high = bootstrap_mean(values.mean(axis=0), confidence, bounds=bounds)
    std = per_seed.std(ddof=1) if seeds > 1 else np.nan
    return {
        "measure": name,
        "mean": per_seed.mean(),
        "std": std,
        "low": low,
        "high": high,
        "nodes": nodes,
        "seeds": seeds,
    }
