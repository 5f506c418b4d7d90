"""Sections of the report: sections.toml has their texts and their order, the modules compute their numbers."""

from cfe_faiss.audit.reporting.document import Section
from cfe_faiss.audit.reporting.inputs import Inputs
from cfe_faiss.audit.reporting.sections import balance, direct_effects, groups, model_tests, pairs
from cfe_faiss.audit.reporting.wording import MAKERS, texts

__all__ = ["balance", "direct_effects", "groups", "make_section", "model_tests", "pairs", "section_names"]


def section_names() -> list[str]:
    """Return the names of all sections in their order."""
    return list(texts()["sections"])


def make_section(inputs: Inputs, name: str) -> Section:
    """Return a section. A section without a function consists of texts."""
    return MAKERS[name](inputs) if name in MAKERS else inputs.section(name)
