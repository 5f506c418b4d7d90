"""Audits of a model: direct tests, rates of groups, comparisons, errors, fine-tuning.

Each audit is a function of a finder. Tables are pandas ``DataFrame`` objects; the extra "audit"
installs pandas.
"""

from cfe_faiss.audit.attribute_pairs import Dominated, OnlyIn, OnlyInPairs, dominated, only_in
from cfe_faiss.audit.effects import (
    DirectEffects,
    DirectionTest,
    SituationTest,
    adjusted_p_values,
    direct_effects,
    direction_test,
    situation_test,
)
from cfe_faiss.audit.finetuning import FineTuning, fine_tune
from cfe_faiss.audit.flipping import FlipTest, flip
from cfe_faiss.audit.graph_fairness import (
    GroupDisparity,
    IndividualBias,
    RankingNDCG,
    group_disparity,
    individual_bias,
    ranking_ndcg,
    similarity_graph,
)
from cfe_faiss.audit.group_rates import (
    GroupMetrics,
    calibration_curves,
    group_metrics,
    threshold_curves,
)
from cfe_faiss.audit.model_comparison import ModelComparison, compare_models
from cfe_faiss.audit.neighbours import consistency, discrimination_scores, error_rate_by_evidence
from cfe_faiss.audit.reporting import Check, Condition, Report, Subject, report

__all__ = [
    "Check",
    "Condition",
    "DirectEffects",
    "DirectionTest",
    "Dominated",
    "FineTuning",
    "FlipTest",
    "GroupDisparity",
    "GroupMetrics",
    "IndividualBias",
    "ModelComparison",
    "OnlyIn",
    "OnlyInPairs",
    "RankingNDCG",
    "Report",
    "SituationTest",
    "Subject",
    "adjusted_p_values",
    "calibration_curves",
    "compare_models",
    "consistency",
    "direct_effects",
    "direction_test",
    "discrimination_scores",
    "dominated",
    "error_rate_by_evidence",
    "fine_tune",
    "flip",
    "group_disparity",
    "group_metrics",
    "individual_bias",
    "only_in",
    "ranking_ndcg",
    "report",
    "similarity_graph",
    "situation_test",
    "threshold_curves",
]
