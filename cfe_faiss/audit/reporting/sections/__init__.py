"""Sections of the report: a function returns the numbers of each, its template has the words."""

from collections.abc import Callable
from dataclasses import dataclass

from cfe_faiss.audit.reporting.document import Section
from cfe_faiss.audit.reporting.inputs import Inputs, Need
from cfe_faiss.audit.reporting.sections.direct_effects import all_tests_section, sensitivity_section
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
from cfe_faiss.audit.reporting.sections.models import flip_section, models_section, only_in_section
from cfe_faiss.audit.reporting.sections.pairs import (
    balance_section,
    cases_section,
    pairs_section,
    strongest_section,
)


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
    """

    name: str
    numbers: Callable[[Inputs], Section] = lambda inputs: Section()
    needs: tuple[Need, ...] = ()
    is_open: bool = False
    is_optional: bool = False


SECTIONS = (
    Part("strongest_case", strongest_section, is_open=True),
    Part("groups", groups_section, ("sensitive",), is_open=True),
    Part("tests", all_tests_section, ("sensitive", "favourable", "unfavourable"), is_open=True),
    Part("models", models_section, ("models",), is_open=True, is_optional=True),
    Part("counts", counts_section, ("sensitive",)),
    Part("error_rates", error_rates_section, ("sensitive", "truth")),
    Part("outcomes", outcomes_section, ("sensitive", "selective"), is_open=True, is_optional=True),
    Part("calibration", calibration_section, ("probabilities", "sensitive", "favourable")),
    Part("sensitivity", sensitivity_section),
    Part("flip", flip_section, ("model", "sensitive")),
    Part("only_in", only_in_section, ("sensitive",)),
    Part("pairs", pairs_section),
    Part("cases", cases_section),
    Part("balance", balance_section),
    Part("discrimination", discrimination_section),
    Part("consistency", consistency_section),
    Part("errors", errors_section, ("truth",)),
    Part("method"),
    Part("subject"),
)
"""The sections of the report in their order."""
