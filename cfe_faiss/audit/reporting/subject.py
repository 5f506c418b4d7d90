"""Subject of a report: names, versions, hashes, and the command that makes it again."""

import hashlib
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.audit.intervals import wilson
from cfe_faiss.audit.reporting.formats import interval, listed, plural, share, shown
from cfe_faiss.audit.reporting.inputs import Inputs
from cfe_faiss.base.checks import UNKNOWN
from cfe_faiss.graph import Graph

BLANKS = (
    "Purpose of the model",
    "Who decides with it, about whom",
    "Version of the model in use",
    "Person responsible",
    "Reviewed by, on",
    "Remarks",
)
"""Lines that people fill in by hand."""

_PACKAGES = ("cfe-faiss", "faiss-cpu", "numpy", "scipy", "scikit-learn", "torch", "torch_geometric", "pandas")


@dataclass(frozen=True, slots=True)
class Subject:
    """What the report says it is about; every text is shown as it is.

    Attributes
    ----------
    title
        By default made of the next two.
    data, model
        What they are called; by default ``data.name`` and the class of the model.
    command
        The command that makes the report again.
    seed
        Of the split and the training.
    files
        SHA-256 of the files that were read, by name.
    people
        The plural noun for the audited rows, "applicants" say; by default "people", or "nodes" where there is a graph.
    """

    title: str = ""
    data: str = ""
    model: str = ""
    command: str = ""
    seed: int | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    people: str = ""


def scope(inputs: Inputs, subject: Subject) -> list[str]:
    """Return sentences that say what was audited, for readers who know neither the data nor the model."""
    people, total = inputs.people, len(inputs.finder.labels)
    part = inputs.count(total) if len(inputs.nodes) == total else f"{len(inputs.nodes):,} of {inputs.count(total)}"
    lines = [f"Data: {_data(inputs, subject)}. Model: {_model(inputs, subject)}. Audited: the decisions about {part}."]
    if inputs.favourable is not None:
        selected, low, high = _share(inputs.labels == inputs.favourable, inputs.settings.confidence)
        name = shown(inputs.class_name(inputs.favourable))
        lines.append(
            f"The favourable decision is “{name}”. It was made for {share(selected)} of these {people} "
            f"({inputs.level} interval {interval(low, high, 'share')})."
        )
    if inputs.truth is not None:
        judged = inputs.truth != UNKNOWN
        right, low, high = _share((inputs.truth == inputs.labels)[judged], inputs.settings.confidence)
        lines.append(
            f"Of {plural(int(judged.sum()), 'decision')} with a known true class {share(right)} are right "
            f"({inputs.level} interval {interval(low, high, 'share')})."
        )
    if inputs.sensitive:
        lines.append(f"Compared: {listed(map(shown, inputs.sensitive))}. Similarity is computed from {_basis(inputs)}.")
    return lines


def _share(hits: NDArray[np.bool_], confidence: float) -> tuple[float, float, float]:
    low, high = wilson(int(hits.sum()), len(hits), confidence)
    return float(hits.mean()), float(low), float(high)


def _basis(inputs: Inputs) -> str:
    removed = inputs.finder.removed
    without = "" if removed is None else f", without {listed(map(shown, removed.attributes))}"
    graph = "" if inputs.finder.graph is None else " and the connections"
    return f"{plural(inputs.finder.vectors.shape[1], 'feature')}{graph}{without}"


def title_of(inputs: Inputs, subject: Subject) -> str:
    """Return the heading of the report."""
    return subject.title or f"Audit: {_data(inputs, subject)}, {_model(inputs, subject)}"


def facts(inputs: Inputs, subject: Subject) -> list[tuple[str, str]]:
    """Return what is known of the subject, each with its name."""
    graph = inputs.finder.graph
    sizes = np.bincount(inputs.labels[inputs.labels >= 0], minlength=len(inputs.class_names))
    classes = [f"{shown(name, 40)} {size:,}" for name, size in zip(inputs.class_names, sizes, strict=True) if size]
    known = 0 if inputs.truth is None else int((inputs.truth >= 0).sum())
    total = len(inputs.finder.labels)
    names = [shown(name, 40) for name in inputs.attributes]
    more = f" and {len(names) - 40:,} more" if len(names) > 40 else ""
    favourable = None if inputs.favourable is None else inputs.class_name(inputs.favourable)
    found = [
        ("Data", _data(inputs, subject)),
        ("Model", _model(inputs, subject)),
        (f"Audited {inputs.people}", f"{len(inputs.nodes):,} of {total:,}"),
        *([] if graph is None else [("Connections", _connections(inputs, graph))]),
        ("Predicted classes", ", ".join(classes)),
        ("Favourable class", shown(favourable, 40) if favourable else "none was named; each class is reported in turn"),
        ("True classes", f"known for {inputs.count(known)}" if known else "not known"),
        (f"Attributes ({len(names):,})", ", ".join(names[:40]) + more),
        (
            "Sensitive attributes",
            listed([shown(name, 40) for name in inputs.sensitive]) if inputs.sensitive else "none named",
        ),
        *_vectors(inputs),
        ("Seed", "not given" if subject.seed is None else str(subject.seed)),
        ("Command to rerun", subject.command or "not given"),
        ("Versions", ", ".join(f"{name} {text}" for name, text in versions().items())),
        ("SHA-256 of the predictions", digest(inputs.finder.labels)),
        ("SHA-256 of the vectors", digest(inputs.finder.vectors)),
        *([] if graph is None else [("SHA-256 of the connections", _digest_of(graph))]),
    ]
    return found + [(f"SHA-256 of {shown(name, 60)}", text) for name, text in subject.files.items()]


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that have a part in the numbers."""
    found = {"Python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def digest(*arrays: NDArray[Any]) -> str:
    r"""Return the SHA-256 of arrays: of the dtype ("<f4"), the shape and the bytes of each, row after row.

    Examples
    --------
    >>> digest(np.array([1, 2], np.int32)) == hashlib.sha256(b"<i4 (2,)" + b"\1\0\0\0\2\0\0\0").hexdigest()
    True
    """
    hashed = hashlib.sha256()
    for array in arrays:
        hashed.update(f"{array.dtype.str} {array.shape}".encode())
        hashed.update(np.ascontiguousarray(array).tobytes())
    return hashed.hexdigest()


def _connections(inputs: Inputs, graph: Graph) -> str:
    count = f"{graph.num_edges:,}, directed" if graph.directed else f"{graph.num_edges // 2:,}"
    if graph.weights is not None:
        return f"{count}, by weight"
    return count + "".join(f"; {name} for the model only" for name in inputs.finder.model_only)


def _digest_of(graph: Graph) -> str:
    return digest(graph.indptr, graph.indices, *([] if graph.weights is None else [graph.weights]))


def _vectors(inputs: Inputs) -> list[tuple[str, str]]:
    removed = inputs.finder.removed
    if removed is None:
        return []
    found = [("Left out of the similarity", listed([shown(name, 40) for name in removed.attributes]))]
    if removed.proxies:
        some = ", ".join(f"{shown(proxy.column, 40)} ({proxy.strength:.2f})" for proxy in removed.proxies[:8])
        found.append(("Still in it, and going along with these", some))
    return found


def _data(inputs: Inputs, subject: Subject) -> str:
    name = getattr(inputs.data, "name", None)  # of a table, this may be a column
    return subject.data or (name if isinstance(name, str) and name else "data without a name")


def _model(inputs: Inputs, subject: Subject) -> str:
    if subject.model:
        return subject.model
    return "given predictions" if inputs.model is None else type(inputs.model).__name__
