"""Sections of the report: a function returns the numbers of each, its template has the words.

The modules of this folder declare their sections, and the metrics that these measure, in ``PARTS``.
"""

from cfe_faiss.audit.reporting.inputs import Part
from cfe_faiss.audit.reporting.sections import groups, model_tests, pairs, variations

_TOP_SECTIONS = ("strongest_case", "groups", "tests", "models")
"""The sections at the top, in their order."""
_PARTS = {
    part.name: part for module in (groups, model_tests, variations, pairs) for part in module.PARTS
}
_TEXT_SECTIONS = (Part("method"), Part("subject"))

SECTIONS = (*(_PARTS[name] for name in dict.fromkeys((*_TOP_SECTIONS, *_PARTS))), *_TEXT_SECTIONS)
"""The sections of the report in their order."""
METRICS = {name: metric for part in SECTIONS for name, metric in part.metrics.items()}
"""The metrics that conditions can be about."""
SECTION_OF = {name: part.name for part in SECTIONS for name in part.metrics}
"""The section that measures each metric."""
