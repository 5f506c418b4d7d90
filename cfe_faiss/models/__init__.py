"""Node classifiers: building, training, prediction, evaluation.

The first use of a name loads torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cfe_faiss.data.predict import predict
    from cfe_faiss.models.gnn import NAMES, build, gat, gcn, gin, mpnn, sage
    from cfe_faiss.models.loop import Evaluation, TrainingReport, evaluate, load, save, train

_MODULES = {
    "data.predict": ("predict",),
    "models.gnn": ("NAMES", "build", "gat", "gcn", "gin", "mpnn", "sage"),
    "models.loop": ("Evaluation", "TrainingReport", "evaluate", "load", "save", "train"),
}

__all__ = [
    "NAMES",
    "Evaluation",
    "TrainingReport",
    "build",
    "evaluate",
    "gat",
    "gcn",
    "gin",
    "load",
    "mpnn",
    "predict",
    "sage",
    "save",
    "train",
]


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"cfe_faiss.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
