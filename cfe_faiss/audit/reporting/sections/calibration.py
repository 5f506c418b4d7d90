"""Calibration by group, and rates of groups at other thresholds, where probabilities are known."""

from cfe_faiss.audit.reporting.document import Section
from cfe_faiss.audit.reporting.inputs import Inputs


def calibration_section(inputs: Inputs) -> Section:
    """Return how far probabilities are right for each group, and the shares selected at other thresholds."""
    title = "Calibration and thresholds"
    purpose = "Do equal probabilities mean the same for each group, and what would other thresholds do?"
    return Section("calibration", title, purpose, missing="No probabilities are known.")
