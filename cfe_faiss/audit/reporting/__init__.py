"""Report of an audit: a page for readers, and its numbers for programs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

from cfe_faiss.attributes.constraints import Constraints
from cfe_faiss.audit.groups import DEFAULT_BINS, Bins, check_finder
from cfe_faiss.audit.reporting.conditions import (
    OUTCOMES,
    Check,
    Condition,
    as_conditions,
    check_conditions,
)
from cfe_faiss.audit.reporting.inputs import Settings, Subject, check_inputs
from cfe_faiss.audit.reporting.sections import METRICS
from cfe_faiss.base.checks import as_names
from cfe_faiss.files.outputs import as_page, check_outputs
from cfe_faiss.finder import EvidenceFinder


@dataclass(frozen=True, slots=True)
class Report:
    """Result of :func:`report`.

    Attributes
    ----------
    files
        The page, JSON, JUnit XML and CSV, the explorer, then the drawings.
    checks
        Outcome of every condition, for each of its groups.
    numbers
        Content of report.json.
    """

    files: tuple[Path, ...]
    checks: tuple[Check, ...]
    numbers: dict[str, Any]

    @property
    def outcome(self) -> str:
        """Worst outcome of all checks: "fail", "cannot tell" or "pass".

        "no conditions" without any.
        """
        outcomes = {check.outcome for check in self.checks}
        return next((outcome for outcome in OUTCOMES if outcome in outcomes), "no conditions")

    @property
    def passed(self) -> bool:
        """Whether there are conditions, and all of them passed for every group."""
        return self.outcome == "pass"

    def __repr__(self) -> str:
        return f"Report({str(self.files[0])!r}, {len(self.checks)} checks, {self.outcome})"


def report(  # noqa: PLR0913
    finder: EvidenceFinder,
    path: str | PathLike[str],
    *,
    sensitive: Sequence[str] | None = None,
    favourable: int | str | Sequence[int | str] | None = None,
    truth_favourable: int | str | Sequence[int | str] | None = None,
    require: Sequence[str | Condition] = (),
    where: Constraints | None = None,
    compare: Mapping[str, Any] | None = None,
    subject: Subject | None = None,
    k: int = 10,
    pairs: int = 1000,
    cases: int = 10,
    bins: Bins = DEFAULT_BINS,
    confidence: float = 0.95,
    reference: Mapping[str, Any] | None = None,
    better: Mapping[str, Any] | None = None,
    person: Any = None,
    skip: Sequence[str] = (),
    figures: str | PathLike[str] | None = None,
    explorer: str | PathLike[str] | None = None,
    overwrite: bool = False,
    progress: bool = True,
) -> Report:
    """Audit a model and write a report: a page for readers, and the same numbers for programs.

    The page is ``NAME.html``, next to ``NAME.json`` (all numbers), ``NAME.xml`` (for JUnit) and
    ``NAME.csv`` (a long table). After an error none has changed; see :doc:`/user_guide/report`.

    Parameters
    ----------
    finder
        Its searched rows with a predicted class are audited. The flip test calls its model.
    path
        The page to write; its name must end in ".html".
    sensitive
        Names of attributes to compare, to cross in pairs and to test; by default the finder's.
    favourable, truth_favourable
        The class that counts as selected, number or name, or several together (None: each in turn,
        without impact ratios in conditions); true classes that agree, if truth has different names.
    require
        Conditions such as "impact_ratio[sex]>=0.8", as strings or :class:`Condition` objects.
    where
        ``cfe_faiss.Constraints`` on the closest pairs, their case files and their balance.
    compare, subject
        Predictions of other models, see :func:`compare_models`; names of data, model and people.
    k, pairs, cases
        Numbers of evidence per node, of closest pairs, and of case files.
    bins, confidence
        Cuts of numbers, see :func:`cfe_faiss.audit.groups.groupings`; level of intervals in (0, 1).
    reference, better
        By attribute: the group to compare with, see :func:`group_metrics`; by column: the better
        end, in which the refused person of the strongest case is as good, see :func:`dominated`.
    person, skip
        Attribute that says whose each row is: tests count people; ids of sections to leave out.
    figures, explorer, overwrite
        Folder for SVG drawings; explorer of the pairs; whether to replace files of other programs.
    progress
        Whether to show a progress bar on standard error (never when it is not a terminal).

    Returns
    -------
    Report
        The files, and the outcomes of the conditions.

    Raises
    ------
    TypeError, ValueError, OSError
        If an argument is not as described, a condition names something that is not measured, or a
        file of the report is an input, mapped, or foreign without ``overwrite``, or not to be made.

    Examples
    --------
    >>> import tempfile
    >>> import cfe_faiss as cfe
    >>> from cfe_faiss.datasets import load
    >>> data = load("patients")
    >>> finder = cfe.EvidenceFinder.from_data(data, 1 - data.y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [file.name for file in report(finder, f"{folder}/report.html", pairs=50).files]
    ['report.html', 'report.json', 'report.xml', 'report.csv']
    """
    check_finder(finder)
    from cfe_faiss.audit.reporting.content import collect
    from cfe_faiss.audit.reporting.files import report_files, write_all
    from cfe_faiss.audit.reporting.sections.pairs import explorer_of

    target = as_page("path", path)
    subject = subject or Subject()
    folder = None if figures is None else Path(figures)
    inputs_read = [*finder.files, *map(Path, subject.files)]
    folders = [] if folder is None else [folder]
    if folder is not None and folder.exists() and not folder.is_dir():
        raise ValueError(f"figures must be a folder, got the file {folder}")
    page = None if explorer is None else as_page("explorer", explorer)
    pages = [] if page is None else [page]
    outputs = [*report_files(target), *pages, *folders]
    check_outputs(outputs, inputs_read, overwrite=overwrite, folders=folders)
    settings = Settings(
        k, pairs, cases, bins, confidence, where, reference, better, person, as_names("skip", skip)
    )
    inputs = check_inputs(
        finder, sensitive, favourable, settings, subject, compare, truth_favourable
    )
    conditions = as_conditions(require)
    check_conditions(conditions, inputs)
    content = collect(inputs, conditions, progress)
    if page is not None:
        content = replace(content, explorer=(page, explorer_of(inputs)))
    written = write_all(content, target, folder, inputs=inputs_read, overwrite=overwrite)
    return Report(written, content.checks, content.numbers)


__all__ = ["METRICS", "Check", "Condition", "Report", "Subject", "report"]
