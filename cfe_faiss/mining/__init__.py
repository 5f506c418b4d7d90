"""Mining with nearest rows of other groups.

Hard negatives, leaks, wrong labels, conflicts of verdicts, Tomek links, trust scores, and balanced
neighbours.
"""

from cfe_faiss.mining.labels import LabelErrors, label_errors
from cfe_faiss.mining.miners import (
    batch_balanced_neighbors,
    hard_negatives,
    near_duplicates,
    nearest_enemies,
    tomek_links,
    trust_scores,
)
from cfe_faiss.mining.verdicts import VerdictConflicts, verdict_conflicts

__all__ = [
    "LabelErrors",
    "VerdictConflicts",
    "batch_balanced_neighbors",
    "hard_negatives",
    "label_errors",
    "near_duplicates",
    "nearest_enemies",
    "tomek_links",
    "trust_scores",
    "verdict_conflicts",
]
