"""Sections of the report: a function returns the numbers of each, its template has the words.

This is the one place where sections, and the metrics of conditions that they measure, are declared.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from cfe_faiss.audit.reporting.document import Section
from cfe_faiss.audit.reporting.inputs import Inputs, Need
from cfe_faiss.audit.reporting.sections.groups import (
    calibration_section,
    consistency_section,
    counts_section,
    discrimination_section,
    error_rates_section,
    errors_section,
    groups_section,
    outcomes_section,
)
from cfe_faiss.audit.reporting.sections.model_tests import (
    all_tests_section,
    flip_section,
    models_section,
    only_in_section,
    sensitivity_section,
)
from cfe_faiss.audit.reporting.sections.pairs import (
    balance_section,
    cases_section,
    pairs_section,
    strongest_section,
)


@dataclass(frozen=True, slots=True)
class Metric:
    """Metric of a condition.

    Attributes
    ----------
    key, n
        Keys of the number and of its cases in ``Section.measured``.
    needs
        Requirements, see :meth:`Inputs.has`.
    is_ranked
        Whether it is defined for groups that can be ranked only.
    is_count
        Whether it is a whole number.
    """

    key: str
    n: str
    needs: tuple[Need, ...] = ()
    is_ranked: bool = False
    is_count: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """Place of a section in the report.

    Attributes
    ----------
    name
        Its id. Its template is ``templates/sections/NAME.txt.j2``.
    numbers
        The function of its numbers. A section of words alone has none.
    needs
        Requirements, see :meth:`Inputs.has`; the section says which of them is not met first.
    is_open
        Whether the page shows it in full, above the details.
    is_optional
        Whether it is left out if a need is not met.
    metrics
        The metrics that it measures, by their names in conditions.
    """

    name: str
    numbers: Callable[[Inputs], Section] = lambda inputs: Section()
    needs: tuple[Need, ...] = ()
    is_open: bool = False
    is_optional: bool = False
    metrics: Mapping[str, Metric] = field(default_factory=dict)


_GROUPS: tuple[Need, ...] = ("favourable", "sensitive")
_ERRORS: tuple[Need, ...] = (*_GROUPS, "truth")

SECTIONS = (
    Part("strongest_case", strongest_section, is_open=True),
    Part(
        "groups",
        groups_section,
        ("sensitive",),
        is_open=True,
        metrics={
            "selection_rate": Metric("rate", "count", _GROUPS),
            "impact_ratio": Metric("ratio", "count", _GROUPS, is_ranked=True),
            "selection_rate_difference": Metric("difference", "count", _GROUPS, is_ranked=True),
            "accuracy": Metric("accuracy", "judged", _ERRORS),
            "false_positive_rate": Metric("fpr", "negatives", _ERRORS),
            "false_negative_rate": Metric("fnr", "positives", _ERRORS),
        },
    ),
    Part("tests", all_tests_section, ("sensitive", "favourable", "unfavourable"), is_open=True),
    Part(
        "models",
        models_section,
        ("models",),
        is_open=True,
        is_optional=True,
        metrics={
            "evidence_pairs": Metric("evidence", "n", ("models",), is_count=True),
            "changed_share": Metric("changed_share", "n", ("models",)),
        },
    ),
    Part("counts", counts_section, ("sensitive",)),
    Part(
        "error_rates",
        error_rates_section,
        ("sensitive", "truth"),
        metrics={
            "equalised_odds_difference": Metric("equalised_odds_difference", "judged", _ERRORS)
        },
    ),
    Part("outcomes", outcomes_section, ("sensitive", "selective"), is_open=True, is_optional=True),
    Part("calibration", calibration_section, ("probabilities", "sensitive", "favourable")),
    Part("sensitivity", sensitivity_section),
    Part(
        "flip",
        flip_section,
        ("model", "sensitive"),
        metrics={"flipped": Metric("share", "nodes", ("model", "sensitive"))},
    ),
    Part(
        "only_in",
        only_in_section,
        ("sensitive",),
        metrics={"only_in": Metric("share", "pairs", ("sensitive",))},
    ),
    Part("pairs", pairs_section),
    Part("cases", cases_section),
    Part("balance", balance_section),
    Part("discrimination", discrimination_section),
    Part("consistency", consistency_section, metrics={"consistency": Metric("share", "nodes")}),
    Part(
        "errors",
        errors_section,
        ("truth",),
        metrics={"overall_accuracy": Metric("overall", "overall_nodes", ("truth",))},
    ),
    Part("method"),
    Part("subject"),
)
"""The sections of the report in their order."""

METRICS = {name: metric for part in SECTIONS for name, metric in part.metrics.items()}
"""The metrics that conditions can be about."""
SECTION_OF = {name: part.name for part in SECTIONS for name in part.metrics}
"""The section that measures each metric."""
