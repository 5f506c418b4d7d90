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
    "Recall and first use": "nprobe_for recall_by_class prepare drift",
    "Read": (
        "get count names rows searched class_name class_numbers measure64 members storage reading reconstruct "
        "excluding class_index index vectors"
    ),
    "Write and convert": "save to_*",
}
"""Names of methods by what they are for, in the order of the pages."""
FEW = 4


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
    """Return the example of a class's docstring as text for the top of its page."""
    found = EXAMPLES.search(inspect.getdoc(_named(module, qualified)) or "")
    if found is None:
        return ""
    paragraphs = found["body"].strip("\n").split("\n\n")
    return "\n\n".join(
        f".. code-block:: pycon\n\n{textwrap.indent(text, '   ')}"
        if text.startswith(">>>")
        else text
        for text in paragraphs
    )


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
