"""Page about one person and the most similar people decided otherwise."""

from dataclasses import dataclass
from html import escape
from importlib.metadata import version
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING, Any

import numpy as np

from cfe_faiss.attributes.table import Attribute
from cfe_faiss.base.arrays import Int32s
from cfe_faiss.base.checks import UNKNOWN
from cfe_faiss.base.extras import extra
from cfe_faiss.base.text import format_measure
from cfe_faiss.rows.metric import measure_of

if TYPE_CHECKING:
    import pandas as pd

    from cfe_faiss.attributes.constraints import Constraints
    from cfe_faiss.finder.finder import EvidenceFinder

_MOST_LINES, _MOST_NAMES, _MOST_LETTERS = 40, 60, 32
"""Lines, names of attributes that agree, and letters of a cell on one page, at most."""


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Case:
    """One person and the most similar people decided otherwise; made by :meth:`EvidenceFinder.case`.

    ``str()`` gives the page as text, :meth:`to_html` as HTML.

    Attributes
    ----------
    title
        Id and decision of the person.
    table
        A column for the person and for each of the others, most similar first, named by their ids. Lines: decision,
        true class and probability, if known, similarity or distance; then the attributes in which somebody differs from
        the person, marked by "*", the largest difference first.
    agreeing
        Value of each attribute that is the same for all.
    """

    title: str
    table: "pd.DataFrame"
    agreeing: dict[str, str]

    def __repr__(self) -> str:
        return f"Case({self.title}, {self.table.shape[1] - 1} decided otherwise)"

    def __str__(self) -> str:
        return "\n\n".join([self.title, self._shown.to_string(), *self._notes]) + "\n"

    def _repr_html_(self) -> str:
        notes = "".join(f"<p>{escape(note)}</p>" for note in self._notes)
        return f"<h1>{escape(self.title)}</h1>{self._shown.to_html(border=0)}{notes}"

    def to_html(self) -> str:
        """Return the page as HTML, with every text escaped; it loads nothing and runs no script."""
        page = Template(files("cfe_faiss.finder").joinpath("case.html").read_text(encoding="utf-8"))
        return page.substitute(version=version("cfe-faiss"), title=escape(self.title), body=self._repr_html_())

    @property
    def _shown(self) -> "pd.DataFrame":
        return self.table.head(_MOST_LINES).rename(index=_short, columns=_short).map(_short)

    @property
    def _notes(self) -> list[str]:
        """Sentences on what the table does not show."""
        if self.table.shape[1] == 1:
            return ["Nobody is decided otherwise."]
        more, same = len(self.table) - _MOST_LINES, [f"{_short(k)} = {_short(v)}" for k, v in self.agreeing.items()]
        notes = [f"Right of {_short(self.table.columns[0])}: the most similar ones decided otherwise. * differs."]
        notes += [f"{more:,} more attributes differ less."] if more > 0 else []
        left = f" and {len(same) - _MOST_NAMES:,} more" if len(same) > _MOST_NAMES else ""
        return notes + ([f"The same for all: {', '.join(same[:_MOST_NAMES])}{left}."] if same else [])


def case_of(finder: "EvidenceFinder", row: int, k: int, where: "Constraints | None") -> Case:
    """Return the page of one row of a finder."""
    with extra("audit"):
        import pandas as pd

    label = int(finder.labels[row])
    if label == UNKNOWN:
        raise ValueError(f"id must name a row with a predicted class, got {finder.names([row]).tolist()[0]!r} without")
    (found,) = finder.local(finder.names([row]), k, where=where).evidence
    rows = np.append([row], found[found >= 0])
    lines = [("Decision", _class_names(finder, finder.labels[rows]))]
    if finder.truth is not None:
        lines.append(("True class", _class_names(finder, finder.truth[rows])))
    if finder.probabilities is not None:
        shares = finder.probabilities[rows, label].tolist()
        lines.append((f"Probability of {finder.class_name(label)}", [f"{share:.3f}" for share in shares]))
    values = finder.measure64(np.full(len(rows) - 1, row), rows[1:])
    measure = measure_of(finder.metric)
    lines.append((measure.capitalize(), ["", *(format_measure(measure, value) for value in values)]))
    differing, agreeing = list[tuple[float, str, list[str]]](), dict[str, str]()
    shown = {} if finder.attributes is None else finder.attributes.take(rows)
    for name, attribute in shown.items():
        whole = finder.attributes[name]  # type: ignore[index]
        texts = [_text(attribute.of(i)) for i in range(len(rows))]
        differs = attribute.codes != attribute.codes[0]
        if differs.any():
            marked = [f"{value} *" if other else value for value, other in zip(texts, differs.tolist(), strict=True)]
            differing.append((_distance(attribute, whole), name, marked))
        else:
            agreeing[name] = texts[0]
    lines += [(name, marked) for _, name, marked in sorted(differing, key=lambda one: -one[0])]
    names = [_text(name) for name in finder.names(rows).tolist()]
    table = pd.DataFrame([values for _, values in lines], [_text(name) for name, _ in lines], names)
    return Case(f"{names[0]}: decided {finder.class_name(label)!r}", table, agreeing)


def _distance(attribute: Attribute, whole: Attribute) -> float:
    """Return how far the others are from the first on average: numbers in standard deviations, other values 0 or 1."""
    away = (attribute.codes != attribute.codes[0])[1:].astype(np.float64)
    if attribute.numbers is not None and whole.numbers is not None:
        change = np.abs(attribute.numbers[1:].astype(np.float64) - attribute.numbers[0])
        away = np.where(np.isnan(change), away, change / (np.nanstd(whole.numbers.astype(np.float64)) or 1))
    return float(away.mean())


def _class_names(finder: "EvidenceFinder", labels: Int32s) -> list[str]:
    return ["not known" if label == UNKNOWN else _text(finder.class_name(label)) for label in labels.tolist()]


def _text(value: Any) -> str:
    """Return a value without characters that move the cursor of a terminal or reverse a line."""
    text = "missing" if value is None else f"{value:.6g}" if isinstance(value, float | np.floating) else str(value)
    return text if text.isprintable() else "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def _short(text: str) -> str:
    return text if len(text) <= _MOST_LETTERS else f"{text[: _MOST_LETTERS - 9]}…{text[-8:]}"
