"""Members on the page of a class: our documented ones, without members of FAISS's and other base classes."""

import importlib
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from typing import Any

PURPOSES = {
    "Make one": "from_* paper open load",
    "Train and fill": "fit fit_transform train add add_with_labels add_with_ids upsert* merge_from",
    "Run": "run status",
    "Find evidence": (
        "local top_pairs widest_pairs case explore evidence pairs pairs_above search_evidence search_stored "
        "search_certified search_per_label range_search_evidence kneighbors* radius_neighbors* transform search predict"
    ),
    "Show": "plot to_frame to_html",
    "Change": "relabel update* remove_ids delete reset reviewed",
    "Thresholds and groups": "similarity_curve threshold interval rate groups",
    "Recall and first use": "nprobe_for recall_by_class prepare drift",
    "Read": (
        "get count names rows searched class_name class_numbers measure64 members storage reading reconstruct "
        "excluding class_index index vectors"
    ),
    "Write and convert": "save to_*",
}
"""Names of methods by what they are for, in the order of the pages."""
FEW = 4
MAKERS = {
    "LocalEvidence": "EvidenceFinder",
    "PairEvidence": "EvidenceFinder",
    "Case": "EvidenceFinder.case",
    "Hits": "EvidenceStore",
    "Hit": "EvidenceStore",
    "Rows": "EvidenceStore",
    "DuplicateGroup": "EvidenceStore.groups",
    "EvidenceError": "Watch",
    "SimilarityCurve": "similarity_curve",
    "OnlyInPairs": "only_in",
    "Removed": "EvidenceFinder",
    "Subject": "report",
    "Check": "report",
    "TrainingReport": "EvidenceFinder",
    "Pairs": "global_evidence",
    "EvidenceIndex": "IndexEvidenceFlat",
    "Attribute": "as_attributes",
    "Encoding": "encode",
    "FineTuning": "fine_tune",
    "Grouping": "groupings",
    "JobError": "Job",
    "StageStatus": "Job",
    "OwnFiles": "read_own",
    "OwnGraph": "read_own",
    "Predictions": "as_predictions",
    "StoredEdges": "stored_edges",
    "StoredFeatures": "stored_features",
}
"""Function or class whose example shows how a result is made, where the docstring of the result names none."""


SHOWN = {
    "InputWarning": '>>> warnings.simplefilter("error", cfe.InputWarning)  # stops at each',
    "ServedEvidenceIndex": (
        '>>> with ServedEvidenceIndex("DIR/index", replicas=4, address="auto") as served:\n'
        "...     D, I = served.search_evidence(xq, labels_q, k=10, nprobe=16)"
    ),
}
"""Examples of classes that would change this process, or need a cluster: they are shown, not run."""


def public_methods(module: str, qualified: str) -> list[str]:
    """Return the names of the methods that cfe_faiss defines for the class and that have a docstring."""
    return [
        name for name, member in _documented(module, qualified) if not isinstance(member, property)
    ]


def methods_by_purpose(module: str, qualified: str) -> list[tuple[str, list[str]]]:
    """Return the methods of a class by their purposes, with titles; few of them have the one title Methods."""
    left = public_methods(module, qualified)
    if len(left) <= FEW:
        return [("Methods", left)] if left else []
    groups: list[tuple[str, list[str]]] = []
    for title, patterns in PURPOSES.items():
        names = [name for pattern in patterns.split() for name in left if fnmatch(name, pattern)]
        names = list(dict.fromkeys(names))
        left = [name for name in left if name not in names]
        groups.append((title, names))
    bases = [base for base in _named(module, qualified).__mro__ if base.__module__[:5] == "faiss"]
    faiss = [name for name in left if any(name in vars(base) for base in bases)]
    groups.append(("Other methods of FAISS", faiss))
    groups.append(("Other methods", [name for name in left if name not in faiss]))
    return [(title, names) for title, names in groups if names]


def first_example(module: str, qualified: str) -> str:
    """Return the example of a class as text for the top of its page: its own, or that of a function that makes it."""
    shown = [SHOWN[qualified]] if qualified in SHOWN else []
    found = shown or _examples(_named(module, qualified)) or _examples_of_maker(module, qualified)
    return "\n\n".join(
        f".. code-block:: pycon\n\n{textwrap.indent(text.replace('<BLANKLINE>', ''), '   ')}"
        if text.startswith(">>>")
        else text
        for text in found
    )


def _examples(item: Any) -> list[str]:
    """Return the paragraphs of the section with the examples."""
    found = EXAMPLES.search(inspect.getdoc(item) or "")
    return found["body"].strip().split("\n\n") if found else []


def _examples_of_maker(module: str, qualified: str) -> list[str]:
    """Return the first example of a function that the class's docstring says makes it, or that `MAKERS` names."""
    text = inspect.getdoc(_named(module, qualified)) or ""
    names = re.findall(r":(?:func|meth):`~?(?:cfe_faiss\.)?([\w.]+)`", text)
    for name in [*([MAKERS[qualified]] if qualified in MAKERS else []), *names]:
        for place in (module, module.rpartition(".")[0], "cfe_faiss"):
            try:
                paragraphs = _examples(_named(place, name))
            except (AttributeError, ImportError, ValueError):
                continue
            code = [paragraph for paragraph in paragraphs if paragraph.startswith(">>>")]
            if code:
                return code[:1]
    return []


def drop_example(lines: list[str]) -> None:
    """Remove the section with the example from the lines of a docstring."""
    text = EXAMPLES.sub("", "\n".join(lines))
    lines[:] = text.split("\n")


EXAMPLES = re.compile(
    r"^Examples\n-+\n(?P<body>.*?)(?=^\w[\w ]*\n-{3,}\n|\Z)", re.DOTALL | re.MULTILINE
)


def public_properties(module: str, qualified: str) -> list[str]:
    """Return the names of the properties that cfe_faiss defines and that the class's own docstring does not name."""
    text = _named(module, qualified).__doc__ or ""
    attributes = text.partition("Attributes\n")[2].split()
    return [
        name
        for name, member in _documented(module, qualified)
        if isinstance(member, property) and name not in {word.rstrip(",") for word in attributes}
    ]


def _named(module: str, qualified: str) -> Any:
    found: Any = importlib.import_module(module)
    for part in qualified.split("."):
        found = getattr(found, part)
    return found


def _documented(module: str, qualified: str) -> Iterator[tuple[str, Any]]:
    cls = _named(module, qualified)
    for name in dir(cls):
        if name.startswith("_"):
            continue
        owner = next(base for base in cls.__mro__ if name in vars(base))
        member = vars(owner)[name]
        if owner.__module__.startswith("cfe_faiss") and _has_text(member):
            yield name, member


def _has_text(member: Any) -> bool:
    if isinstance(member, property):
        return bool(member.fget and member.fget.__doc__)
    function: Callable[..., Any] | None = getattr(member, "__func__", member)
    return callable(function) and bool(function.__doc__)
