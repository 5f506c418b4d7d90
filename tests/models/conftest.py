import pytest

from cfe_faiss.datasets import load
from cfe_faiss.models import gcn, train


@pytest.fixture(scope="session")
def patients():
    return load("patients")


@pytest.fixture(scope="session")
def trained(patients):
    """Return a trained GCN, for reading only, and its report."""
    model = gcn(patients)
    return model, train(model, patients)
