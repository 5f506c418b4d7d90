"""Node classifiers on PyG's layers: building, training, predicting. Importing this loads torch."""

from cfe_faiss.models.gnn import gcn
from cfe_faiss.models.prediction import predict
from cfe_faiss.models.training import TrainingReport, train

__all__ = ["TrainingReport", "gcn", "predict", "train"]
