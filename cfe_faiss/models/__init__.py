"""Node classifiers: building, training, predicting, judging. Importing this loads torch."""

from cfe_faiss.models.checkpoint import load, save
from cfe_faiss.models.evaluation import Evaluation, evaluate
from cfe_faiss.models.gnn import NAMES, build, gat, gcn, gin, mpnn, sage
from cfe_faiss.models.loop import TrainingReport
from cfe_faiss.models.prediction import predict
from cfe_faiss.models.training import train

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
