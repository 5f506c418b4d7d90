"""Evidence through FAISS's indexes that hold evidence indexes: shards, replicas, refinements and transforms.

Their C++ code does not know Python's parameters. So their ``search`` in Python is replaced by a method that asks the
evidence indexes themselves if it gets such parameters, and FAISS's own method otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import faiss
import numpy as np

from cfe_faiss.base.arrays import Array, Floats, Ints
from cfe_faiss.base.checks import as_array, as_count
from cfe_faiss.base.values import as_lists
from cfe_faiss.rows.faiss_functions import pointer_to
from cfe_faiss.rows.metric import as_rows

Results = tuple[Floats, Ints]
_INSTEAD = "search the evidence indexes themselves, and merge the results by faiss.merge_knn_results"


def search_by_parts(parameters: type) -> None:
    """Make ``search`` and ``range_search`` of FAISS's wrappers accept parameters of a class."""
    found = {cls for cls in vars(faiss).values() if isinstance(cls, type) and issubclass(cls, tuple(_SEARCHES))}
    stock = {(cls, name): getattr(cls, name) for cls in found for name in ("search", "range_search")}
    for (cls, name), method in stock.items():
        setattr(cls, name, _method(name, method, parameters))


def _method(name: str, stock: Callable[..., Any], parameters: type) -> Callable[..., Any]:
    def method(self: Any, *args: Any, params: Any = None, **further: Any) -> Any:
        if not isinstance(params, parameters):
            return stock(self, *args, **further, **({} if params is None else {"params": params}))
        many = "k" if name == "search" else "thresh"
        x, limit = (*args, further.pop(many)) if many in further and len(args) == 1 else (*args, None, None)[:2]
        if further or limit is None:
            raise TypeError(f"{name} with {parameters.__name__} takes x, {many} and params, got {list(further)}")
        search = next(search for kind, search in _SEARCHES.items() if isinstance(self, kind))
        if name == "search":
            return search(self, as_array("x", x), as_count("k", limit), params)
        if search is not _search_transformed:
            raise TypeError(f"range_search of {type(self).__name__} takes no {parameters.__name__}: {_INSTEAD}")
        return _part(self, self.index).range_search(transformed(self, x), limit, params=params)

    method.__name__, method.__doc__ = name, stock.__doc__
    return method


def transformed(holder: Any, x: Any) -> Floats:
    """Return vectors after all transforms of an ``IndexPreTransform``."""
    X = np.ascontiguousarray(as_array("x", x), np.float32)
    for number in range(holder.chain.size()):
        X = faiss.downcast_VectorTransform(holder.chain.at(number)).apply(X)
    return X


def _search_shards(shards: Any, x: Array, k: int, params: Any) -> Results:
    if shards.successive_ids and any(map(params.uses, ("sel", "where", "exclude"))):
        raise TypeError(
            f"params.sel, params.where and params.exclude select ids, but {type(shards).__name__} renumbers them: make "
            "it with successive_ids=False"
        )
    parts = [_part(shards, shards.at(number)) for number in range(shards.count())]
    found, first, worst = [], 0, np.finfo(np.float32).max
    for number, (part, own) in enumerate(zip(parts, _options_of_parts(params, parts, len(x)), strict=True)):
        if own is None:
            padding = worst if shards.metric_type == faiss.METRIC_L2 else -worst
            D, I = np.full((len(x), k), padding, np.float32), np.full((len(x), k), -1)
        else:
            D, I = part.search(x, k, params=own)
        found.append((D, np.where(I < 0, I, I + first)))
        first += shards.at(number).ntotal if shards.successive_ids else 0
    if not found:
        raise ValueError(f"params of evidence need an index to search, {type(shards).__name__} holds none")
    D, I = (np.concatenate(arrays, axis=1) for arrays in zip(*found, strict=True))
    return _best(D, I, k, descending=shards.metric_type != faiss.METRIC_L2)


def _options_of_parts(params: Any, parts: list[Any], nq: int) -> list[Any]:
    """Return the parameters of each part, without labels that only other parts store; None where nothing is wanted."""
    target = None if params.where is None else params.where.target
    if target is None and params.exclude_labels is None:
        return [params] * len(parts)
    rows = None
    if params.exclude_labels is not None:
        values, lengths = as_lists("params.exclude_labels", params.exclude_labels, nq)
        stops = np.cumsum(lengths)
        rows = [values[start:stop] for start, stop in zip(stops - lengths, stops, strict=True)]
    stored = [set(part.label_names.tolist()) if hasattr(part, "label_names") else None for part in parts]
    known: set[Any] = set().union(*(some for some in stored if some is not None))
    options: list[Any] = []
    for labels in stored:
        elsewhere = set() if labels is None else known - labels
        own = params
        if rows is not None:
            own = replace(own, exclude_labels=[[one for one in row if one not in elsewhere] for row in rows])
        if target is not None:
            kept = [label for label in target if label not in elsewhere]
            own = replace(own, where=replace(own.where, target=kept)) if kept else None
        options.append(own)
    return options


def _search_replicas(replicas: Any, x: Array, k: int, params: Any) -> Results:
    if not replicas.count():
        raise ValueError(f"params of evidence need an index to search, {type(replicas).__name__} holds none")
    found: Results = _part(replicas, replicas.at(0)).search(x, k, params=params)
    return found


def _search_refined(refined: Any, x: Array, k: int, params: Any) -> Results:
    part = _part(refined, refined.base_index)
    _, I = part.search(x, math.ceil(k * max(1.0, refined.k_factor)), params=params)
    vectors = faiss.downcast_index(refined.refine_index).reconstruct_batch(np.maximum(I, 0).ravel())
    queries, vectors = as_rows("x", x, refined.d, getattr(part, "metric", "ip")), vectors.reshape(*I.shape, -1)
    if refined.metric_type == faiss.METRIC_L2:
        differences = vectors.astype(np.float64) - queries[:, None]
        distances = np.einsum("qkd,qkd->qk", differences, differences).astype(np.float32)
        return _best(np.where(I < 0, np.finfo(np.float32).max, distances), I, k, descending=False)
    products = np.einsum("qd,qkd->qk", queries, vectors)
    return _best(np.where(I < 0, np.finfo(np.float32).min, products), I, k, descending=True)


def _search_transformed(holder: Any, x: Array, k: int, params: Any) -> Results:
    found: Results = _part(holder, holder.index).search(transformed(holder, x), k, params=params)
    return found


_SEARCHES: dict[type, Callable[[Any, Array, int, Any], Results]] = {
    faiss.IndexShards: _search_shards,
    faiss.IndexReplicas: _search_replicas,
    faiss.IndexRefine: _search_refined,
    faiss.IndexPreTransform: _search_transformed,
}


def _part(holder: Any, part: Any) -> Any:
    """Return the Python object of an index that FAISS's code holds; TypeError if it finds no evidence."""
    for known in getattr(holder, "referenced_objects", ()):
        if isinstance(known, faiss.Index) and int(pointer_to(known)) == int(pointer_to(part)):
            if hasattr(known, "search_evidence") or isinstance(known, tuple(_SEARCHES)):
                return known
            break
    raise TypeError(
        f"{type(holder).__name__} must hold evidence indexes made in this process, for params of evidence, got "
        f"{faiss.downcast_index(part)!r}; {_INSTEAD}"
    )


def _best(D: Floats, I: Ints, k: int, *, descending: bool) -> Results:
    """Return the k best of each row; equal D: smaller id first."""
    order = np.lexsort((I, -D if descending else D))[:, :k]
    return np.take_along_axis(D, order, 1), np.take_along_axis(I, order, 1)
