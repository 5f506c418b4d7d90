"""KS vectors by blocks of nodes: the steps of the propagation, each from the files of the step before."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss import _native
from cfe_faiss.base import threads
from cfe_faiss.base.temporary import release
from cfe_faiss.scale.graph_stages import neighbors_of
from cfe_faiss.scale.work import Settings, Stage, Work

_UNIT = "step-0"


def stages(settings: Settings, has_edges: bool) -> list[Stage]:
    """Return the stages from features to KS vectors; ``has_edges`` says whether the graph is made by stages, too."""
    found = [Stage(_UNIT, settings.blocks, unit, ())]
    graph = ("graph",) if has_edges else ()
    for layer in range(1, settings.num_layers + 1):
        is_last = layer == settings.num_layers
        name = "vectors" if is_last else f"step-{layer}"
        # The first sum is made of the lengths of the features.
        reads = (*graph, f"step-{layer - 1}")
        found.append(Stage(name, settings.blocks, partial(step, layer=layer), reads))
    if settings.num_layers == 0:
        found.append(Stage("vectors", settings.blocks, normalise, (_UNIT,)))
    return found


def unit(work: Work, block: int) -> Mapping[str, Any]:
    """Write the features of a block divided by their norms, and the norms."""
    first, stop = work.settings.rows(block)
    features = work.inputs["features"].array()
    with np.errstate(over="ignore"):
        X = np.array(features[first:stop], np.float32, order="C")
    release(features)
    norms = np.empty(len(X), np.float64)
    _native.normalise_rows(X, norms, threads.num_threads(X.size))
    finite = np.isfinite(norms)
    if not finite.all():
        raise ValueError(
            f"features must be finite in float32, got NaN, infinity or beyond in row {first + np.argmin(finite)}"
        )
    work.write(_UNIT, block, unit=X, norms=norms)
    return {}


def step(work: Work, block: int, layer: int) -> Mapping[str, Any]:
    """Write the next vectors of a block, and their sum so far; after the last step only the sum, normalised."""
    settings, before = work.settings, f"step-{layer - 1}"
    first, _ = settings.rows(block)
    lengths = lengths_of(work, layer - 1)
    own = np.array(work.read(before, block, "unit"))
    indptr, indices, weights = neighbors_of(work, block)
    taking = _native.BlockStep(indptr, indices, first, own, settings.n, threads.num_threads(), weights)
    for other in range(settings.blocks):
        rows = work.read(before, other, "unit")
        taking.gather(rows, settings.rows(other)[0], lengths)
        release(rows)
    sums = _sums(work, block, layer - 1, own, lengths[first : first + len(own)])
    new_lengths = np.empty(len(own), np.float32)
    taking.finish(settings.alpha, lengths[first : first + len(own)], sums, own, new_lengths)
    if layer < settings.num_layers:
        work.write(f"step-{layer}", block, unit=own, lengths=new_lengths, sums=sums)
    else:
        _write_vectors(work, block, sums)
    return {}


def normalise(work: Work, block: int) -> Mapping[str, Any]:
    """Write the vectors of a block without any step."""
    first, stop = work.settings.rows(block)
    own = work.read(_UNIT, block, "unit")
    _write_vectors(work, block, _sums(work, block, 0, own, lengths_of(work, 0)[first:stop]))
    return {}


def lengths_of(work: Work, layer: int) -> NDArray[np.float32]:
    """Return the lengths of the vectors of all nodes after a step: of the features, in units of the longest."""
    blocks = range(work.settings.blocks)
    if layer > 0:
        return np.concatenate([work.read(f"step-{layer}", block, "lengths") for block in blocks])
    norms = np.concatenate([work.read(_UNIT, block, "norms") for block in blocks])
    lengths: NDArray[np.float32] = (norms / (norms.max() or 1.0)).astype(np.float32)
    return lengths


def _sums(
    work: Work, block: int, layer: int, unit_rows: NDArray[np.float32], lengths: NDArray[np.float32]
) -> NDArray[np.float32]:
    if layer > 0:
        return np.array(work.read(f"step-{layer}", block, "sums"))
    return np.multiply(unit_rows, lengths[:, None])


def _write_vectors(work: Work, block: int, sums: NDArray[np.float32]) -> None:
    _native.normalise_rows(sums, np.empty(len(sums)), threads.num_threads(sums.size))
    work.write("vectors", block, X=sums)
