"""Roles of columns and files: ids, classes, sensitive columns, rows of ids, and likely mistakes."""

import re
import warnings
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cfe_faiss.attributes.table import Attribute, Attributes
from cfe_faiss.base.checks import (
    UNKNOWN,
    Array,
    Bools,
    InputWarning,
    Int32s,
    Ints,
    LeakWarning,
    did_you_mean,
)
from cfe_faiss.base.extras import pd
from cfe_faiss.data.columns import DEFAULT, Reading, Table, parse_ids
from cfe_faiss.data.encode import MOST_VALUES
from cfe_faiss.data.read import read_table

_FEWEST_ROWS = 20
_MOST_SENSITIVE = 20
_EXCEPTIONS = 0.02
"""Share of rows of other classes than their value's, relative to small classes, in a leak."""
_KNOWN = 0.1
_HARDLY_KNOWN = 0.01
"""Shares of rows of a class for which a column is known."""
_ID_NAME = re.compile(
    r"(?:^|[_\W])(?:id|ids|uuid|key|index|nr|no|number)$|(?<=[a-z])(?:Id|ID)$", re.IGNORECASE
)


@dataclass(frozen=True)
class Source:
    """A file and columns of it.

    Attributes
    ----------
    path
        The file.
    columns
        Names of its columns to read; without names all but the ids.
    name
        Name of the source itself.
    option
        What errors call the names of its columns.
    reading
        How to read it.

    Examples
    --------
    >>> Source.parse("people.csv:loan").columns
    ('loan',)
    """

    path: Path
    columns: tuple[str, ...] = ()
    name: str = ""
    option: str = "FILE:COLUMN"
    reading: Reading = DEFAULT

    @classmethod
    def parse(cls, text: str) -> "Source":
        """Return the source of ``FILE``, ``FILE:COLUMN`` or ``FILE:A,B``.

        The longest file that exists counts.
        """
        places = [place for place, character in enumerate(text) if character == ":"]
        if not places or Path(text).exists():
            return cls(Path(text))
        end = next(
            (place for place in reversed(places) if Path(text[:place]).is_file()), places[-1]
        )
        return cls(Path(text[:end]), (text[end + 1 :],))

    @classmethod
    def of(
        cls, texts: Sequence[str], option: str = "FILE:COLUMN", *, named: bool = False
    ) -> "Source":
        """Return the source of ``FILE COLUMN...``, of any names, or as in :meth:`parse`.

        Errors call it ``option``. With ``named``, the file may follow ``NAME=``.
        """
        name, sign, file = texts[0].partition("=")
        is_named = named and bool(sign) and not Path(texts[0]).exists()
        source = cls.parse(file if is_named else texts[0])
        columns = tuple(texts[1:]) or source.columns
        return replace(source, columns=columns, name=name if is_named else "", option=option)

    def read(
        self,
        id: str | None = None,  # noqa: A002 - the name of a field
        *,
        empty: bool = False,
    ) -> tuple[Table, tuple[str, ...]]:
        """Return the table of :func:`read_table`, and the names of its columns but for the ids.

        The text behind ``FILE:`` is the name of one column or, if there is none of this name, of
        several between commas.
        """
        if self.path.suffix == ".npy" and self.columns:
            raise ValueError(
                f"{self.path} has no columns with names, got {', '.join(self.columns)}"
            )
        table = read_table(self.path, self.reading, empty=empty)
        table.problems.check()
        if not self.columns:
            return table, tuple(
                name for name in table.columns if not table.has_header or name != id
            )
        return table, tuple(table.known(self.option, name) for name in self.names(table))

    def names(self, table: Table) -> tuple[str, ...]:
        """Return the names of the columns to read of a table."""
        is_list = len(self.columns) == 1 and self.columns[0] not in table.cells
        return tuple(self.columns[0].split(",")) if is_list else self.columns


@dataclass(frozen=True)
class Ids:
    """Names of n nodes; node v has the name ``names[v]``.

    Attributes
    ----------
    names
        (n,), distinct: int64 if all are written as integers, else texts (object).
    column
        The column of the names, in every file; None if nodes go by their number.

    Examples
    --------
    >>> Ids(np.array(["ada", "bob"], object), "who").find(["bob", "eve"])
    array([ 1, -1])
    """

    names: Array
    column: str | None = None

    def __len__(self) -> int:
        return len(self.names)

    @classmethod
    def of_rows(cls, n: int) -> "Ids":
        """Return the names of nodes that go by their number."""
        return cls(np.arange(n))

    @classmethod
    def of_column(cls, table: Table, name: str | None) -> "Ids":
        """Return the names in a column of a table; None: the row numbers.

        Raises
        ------
        ValueError
            If there is no such column, a row has no name, or two rows have the same name.
        """
        if name is None:
            return cls.of_rows(len(table))
        texts = table.check_ids(name)
        table.check([not text for text in texts], lambda row: f"no {name}")
        return cls(parse_ids(texts), name)

    def find(self, texts: Iterable[str]) -> Ints:
        """Return the number of each name, (m,); -1 for unknown ones."""
        if self.column is None:
            return np.array([_row_number(text, len(self.names)) for text in texts], np.int64)
        rows = {str(name): row for row, name in enumerate(self.names.tolist())}
        return np.array([rows.get(text, UNKNOWN) for text in texts], np.int64)

    def known(self, argument: str, texts: Sequence[str]) -> Ints:
        """Return the number of each name, (m,).

        ValueError names an unknown one, and ``argument`` its origin.
        """
        row_numbers = self.find(texts)
        if (row_numbers < 0).any():
            wrong = texts[int(np.argmax(row_numbers < 0))]
            hint = did_you_mean(wrong, map(str, self.names.tolist()))
            name = "the number of a node" if self.column is None else f"an id of {self.column!r}"
            raise ValueError(f"{argument} must be {name}, got {wrong!r}{hint}")
        return row_numbers

    def rows(self, table: Table) -> Ints:
        """Return the node of each row of a table, (rows,), each at most once.

        Nodes are found by the column of the names. If nodes go by their number, or the file has no
        header, row i is node i.

        Raises
        ------
        ValueError
            If a name is unknown, missing or occurs twice, or there is no such column, or another
            number of rows.
        """
        if self.column is None or not table.has_header:
            if len(table) != len(self):
                raise ValueError(
                    f"{table.name} must hold a row for each of {len(self):,} nodes, got "
                    f"{len(table):,}"
                )
            return np.arange(len(self))
        row_numbers = self.nodes_of(table, self.column)
        _, first, places = np.unique(row_numbers, return_index=True, return_inverse=True)
        table.check(
            first[places] != np.arange(len(row_numbers)),
            lambda row: (
                f"{self.column} {str(self.names[row_numbers[row]])!r} again, as in "
                f"{table.place(int(first[places][row]))}"
            ),
        )
        return row_numbers

    def nodes_of(self, table: Table, column: str) -> Ints:
        """Return the node of each field of a column, (rows,).

        Raises
        ------
        ValueError
            If there is no such column, or a name is missing or unknown.
        """
        texts = table.keys(column)
        row_numbers = self.find(texts)
        expected = (
            f"in 0..{len(self) - 1}" if self.column is None else f"the {self.column} of a node"
        )
        table.check(
            row_numbers < 0,
            lambda row: (
                f"{column} must be {expected}, got {repr(texts[row]) if texts[row] else 'none'}"
            ),
        )
        return row_numbers

    def all_rows(self, table: Table) -> Ints:
        """Return :meth:`rows`; ValueError unless each node has its row."""
        rows = self.rows(table)
        absent = np.setdiff1d(np.arange(len(self)), rows)
        if len(absent):
            raise ValueError(
                f"{table.name} must hold every node, got no row for {len(absent):,} of "
                f"{len(self):,}, such as {self.column} {str(self.names[absent[0]])!r}"
            )
        return rows


def _row_number(text: str, n: int) -> int:
    """Return a number in 0..n-1 written as an integer, or like one ("3.0"); -1 for another text."""
    whole, _, fraction = text.partition(".")
    if not whole.isdecimal() or len(whole) >= 19 or fraction.strip("0"):
        return UNKNOWN
    number = int(whole)
    return number if number < n else UNKNOWN


@dataclass(frozen=True, slots=True)
class Roles:
    """Roles of the columns of a table, as users give them.

    They are names of columns, or values, (n,), of ids and classes.

    Attributes
    ----------
    id, truth, probabilities
        Ids, true classes, and the probability of each class; None if there are none.
    sensitive, without
        Columns that stay out of the vectors, and remain attributes.
    ignore
        Columns that are no attributes, either.
    weights
        Column of the weight of each row; None: equal weights.
    class_names
        Names of the classes, in their order; None: the classes that occur.
    unknown
        Values that stand for an unknown class, see :func:`cfe_faiss.data.classes.known_classes`.
    """

    id: Any = None
    truth: Any = None
    sensitive: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    weights: str | None = None
    probabilities: Any = None
    class_names: Sequence[str] | None = None
    unknown: Collection[Any] | None = None

    def read(
        self, table: Table, model: Any = None, *, any_texts: bool = False
    ) -> tuple[list[str], "pd.DataFrame"]:
        """Return the names of the attributes, and a frame of them and the columns of other roles.

        Errors become problems of the table. With ``any_texts``, columns of texts need not be
        categories; ``model`` as in :meth:`attributes`.
        """
        names = self.attributes(table, model)
        classes = [name for name in (self.truth, model) if isinstance(name, str)]
        others = [*classes, *named_columns(self.probabilities), *named_columns(self.weights)]
        columns = dict.fromkeys(name for name in (*names, *others) if name in table.cells)
        frame = table.frame(columns, classes)
        if not any_texts:
            left_out = (*self.sensitive, *self.without)
            identified = self.id is not None
            _check_categories(table, frame.filter(items=names), left_out, identified=identified)
        return names, frame

    def attributes(self, table: Table, model: Any = None) -> list[str]:
        """Return the columns without another role.

        Names that are wrong become problems of the table. The columns that these may mean are none
        of the others: a mistyped id is one problem, not also a column of texts that is no category.

        ``model`` counts if it is a text: the name of the column of the predicted classes.
        """
        single = {"id": self.id, "truth": self.truth, "model": model, "weights": self.weights}
        others = [
            *((argument, name) for argument, name in single.items() if isinstance(name, str)),
            *(("probabilities", name) for name in named_columns(self.probabilities)),
            *(("ignore", name) for name in self.ignore),
        ]
        roles = {name: argument for argument, name in others}
        left_out = [
            *(("sensitive", name) for name in self.sensitive),
            *(("without", name) for name in self.without),
        ]
        codes = [("categorical", name) for name in table.reading.categorical]
        for argument, name in (*codes, *others, *left_out):
            with table.problems.collect():
                table.known(argument, name)
        for argument, name in left_out:
            if name in roles:
                option_text = table.reading.shown(argument)
                table.problems.texts.append(
                    f"{option_text} must name attributes, got {name!r}, which is the {roles[name]}"
                )
        hints = "".join(table.problems.texts)
        return [
            name
            for name in table.columns
            if name not in roles and f"; did you mean {name!r}?" not in hints
        ]


def _check_categories(
    table: Table, columns: "pd.DataFrame", left_out: Sequence[str], *, identified: bool
) -> None:
    """Record a problem if columns of texts, such as names and remarks, are no categories.

    Columns that are left out, and copies of them, may hold any texts. A column may become the ids
    unless the rows are ``identified``.
    """
    objects = columns.select_dtypes(object)
    counts = {str(name): objects[name].nunique() for name in objects}
    copied = [name for name in left_out if name in counts]
    wide = [name for name, count in counts.items() if count > MOST_VALUES and name not in left_out]
    texts = []
    for name in wide:
        pairs = {other: len(columns[[name, other]].drop_duplicates()) for other in copied}
        if not any(counts[name] == counts[other] == count for other, count in pairs.items()):
            texts.append(name)
    if not texts:
        return
    if len(texts) == 1:
        different = f"{counts[texts[0]]:,} different texts, more than {MOST_VALUES}"
        shown = f"column {texts[0]!r} has {different}, which is no category"
    else:
        numbers = ", ".join(f"{name!r} {counts[name]:,}" for name in texts)
        shown = (
            f"columns of more than {MOST_VALUES} different texts, which are no categories: "
            f"{numbers}"
        )
    distinct = [name for name in texts if counts[name] == len(columns) and not identified]
    remedies = [
        f"{table.reading.remedy('ignore', *texts)} leaves {'them' if len(texts) > 1 else 'it'} out",
        *(
            f"{table.reading.remedy('id', name)} takes {name!r} for the ids"
            for name in distinct[:1]
        ),
    ]
    table.problems.texts.append(f"{table.name}: {shown}; {', '.join(remedies)}")


def named_columns(given: Any) -> list[str]:
    """Return the names of the columns that an argument gives; none if it holds values."""
    if isinstance(given, str):
        return [given]
    several = isinstance(given, list | tuple) and all(isinstance(name, str) for name in given)
    return list(given) if several else []


# --- warnings about probable mistakes in tables ---------------------------------------------------


def check_table(  # noqa: PLR0913
    attributes: Attributes,
    labels: Int32s | None,
    truth: Int32s | None,
    class_names: Sequence[str],
    *,
    sensitive: Sequence[str] = (),
    left_out: Sequence[str] = (),
    called: bool = False,
    identified: bool = False,
) -> None:
    """Warn of suspicious columns and classes.

    Parameters
    ----------
    attributes
        All columns that are neither ids nor classes, row i of label i.
    labels, truth
        Predicted and true class of each row, positions in ``class_names``, -1 where unknown; or
        None.
    class_names
        Names of the classes.
    sensitive, left_out
        Names of sensitive attributes, and of attributes that the vectors leave out.
    called
        Whether a model was called: a threshold of one of its columns may then be its decision.
    identified
        Whether another column has the ids.

    Warns
    -----
    InputWarning
        One warning for each suspicion.
    """
    texts: list[str | InputWarning] = []
    first_of: dict[str, str] = {}
    for name in class_names:
        first = first_of.setdefault(" ".join(name.split()).casefold(), name)
        if first != name:
            texts.append(
                f"classes {first!r} and {name!r} differ in blanks or case only: write both in the "
                f"same way"
            )
    compared = [attribute for name, attribute in attributes.items() if name not in left_out]
    for attribute in filter(_are_ids, compared):
        name = attribute.name
        words = sum(len(str(value).split()) for value in attribute.values)
        if identified or words > 2 * len(attribute):  # several words each: no ids
            remedy = f"leave it out with ignore=[{name!r}] (--ignore {name})"
        else:
            remedy = f"name it in id (--id {name})"
        texts.append(f"column {name!r} has another value in every row, as ids have: {remedy}")
    for what, classes, by_threshold in (
        ("truth", truth, True),
        ("predictions", labels, not called),
    ):
        for name, classes_with_values in (
            {} if classes is None else leaks(compared, classes, by_threshold)
        ).items():
            how = (
                f", as it is known for {_either(classes_with_values, class_names)} only"
                if classes_with_values
                else ""
            )
            text = (
                f"column {name!r} determines the {what}{how}: if it is the outcome, made from it "
                "or known only after it, name it in truth, model or without (--truth, "
                f"--predictions or --without {name})"
            )
            texts.append(LeakWarning(text, name))
    selective = (
        [] if labels is None or truth is None else selective_classes(labels, truth != UNKNOWN)
    )
    if selective:
        decisions = _either(selective, class_names)
        texts.append(
            f"the truth is known for the decision {decisions} only: audits give no accuracy and no "
            f"error rates"
        )
    for name in sensitive:
        values = attributes[name].values
        if attributes[name].numbers is None and len(values) > _MOST_SENSITIVE:
            texts.append(
                f"sensitive attribute {name!r} has {len(values):,} values, such as {values[0]!r}: "
                f"put them into at most {_MOST_SENSITIVE} groups first (a date into years or ages)"
            )
    for suspicion in texts:
        warnings.warn(suspicion, InputWarning, stacklevel=4)


def _either(labels: Iterable[int], names: Sequence[str]) -> str:
    return " or ".join(repr(names[label]) for label in labels)


def leaks(
    compared: Iterable[Attribute], classes: Int32s, by_threshold: bool
) -> dict[str, list[int]]:
    """Return the columns that determine the classes, and the classes known to them only.

    Parameters
    ----------
    compared
        Columns that may be leaks.
    classes
        Class of each row, (n,), -1 where unknown.
    by_threshold
        Whether a number with many values counts that a threshold parts.
    """
    columns = {}
    for attribute in compared:
        classes_with_values = selective_classes(classes, ~attribute.missing)
        if classes_with_values or _determines(attribute, classes, by_threshold):
            columns[attribute.name] = classes_with_values
    return columns


def selective_classes(labels: Int32s, is_known: Bools) -> list[int]:
    """Return the classes for which something is known, if it is hardly ever known for the others.

    Else none.

    So it is where only the decision shows the truth: who repays is known of granted loans. Errors
    cannot be counted then.

    Parameters
    ----------
    labels
        Class of each row, (n,), -1 where unknown.
    is_known
        Whether it is known for each row, (n,). A class counts as known from a tenth of its rows on,
        and as unknown up to a hundredth.
    """
    if is_known.all() or len(labels) < _FEWEST_ROWS:
        return []
    classes = np.unique(labels[labels != UNKNOWN])
    shares = np.array([is_known[labels == label].mean() for label in classes])
    often = shares >= _KNOWN
    is_selective = often.any() and not often.all() and bool((shares[~often] <= _HARDLY_KNOWN).all())
    known: list[int] = classes[often].tolist()
    return known if is_selective else []


def _are_ids(attribute: Attribute) -> bool:
    numbers = attribute.numbers
    if len(attribute) < _FEWEST_ROWS or len(attribute.values) < len(attribute):
        return False
    if numbers is None:
        return True
    whole = bool((numbers == np.floor(numbers)).all())
    return whole and (
        bool(_ID_NAME.search(attribute.name))
        or float(numbers.max() - numbers.min()) == len(numbers) - 1
    )


def _determines(attribute: Attribute, classes: Int32s, by_threshold: bool) -> bool:
    """Return whether nearly every value belongs to one class, or numbers are parted by it.

    A missing value counts as a value.
    """
    has_class = classes != UNKNOWN
    labels = classes[has_class]
    codes = attribute.codes[has_class]
    if len(labels) < _FEWEST_ROWS:
        return False
    width = int(labels.max()) + 1
    cells = np.bincount(
        (codes - UNKNOWN) * np.int64(width) + labels, minlength=(len(attribute.values) + 1) * width
    )
    # rows of each value, the missing one first, and of each class
    counts = cells.reshape(-1, width)
    of_class = counts.sum(axis=0)
    values = np.count_nonzero(counts.any(axis=1))
    class_count = np.count_nonzero(of_class)
    exceptions = len(labels) - counts.max(axis=1).sum()
    if class_count < 2 or exceptions > _EXCEPTIONS * (len(labels) - of_class.max()):
        return False
    if 5 * values <= len(labels):
        return True
    changes = int((np.diff(labels[np.argsort(codes, kind="stable")]) != 0).sum())
    return by_threshold and attribute.numbers is not None and changes == class_count - 1
