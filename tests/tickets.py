"""A few short texts, an embedding of them that needs no model, and a classifier: for the tests of retrieval stacks."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.linear_model import LogisticRegression

D = 128
TEXTS = [
    "The parcel arrived late and the box was damaged",
    "The parcel arrived late but the box was fine",
    "My parcel never arrived and nobody answers",
    "Where is my parcel, it should have arrived on Monday",
    "The box was damaged and the lamp inside is broken",
    "The lamp arrived broken, I want my money back",
    "The lamp is lovely, thank you for the fast delivery",
    "Thank you, the parcel arrived on Monday and the lamp works",
    "How do I change the delivery address of my parcel",
    "How do I get my money back for a broken lamp",
    "How do I get an invoice for my lamp",
    "Thank you for the fast answer and the invoice",
    "The invoice is wrong and nobody answers",
    "Is the lamp available in blue",
]
COMPLAINTS = np.array([1, 0, 1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 1, 0])
_pieces = HashingVectorizer(
    n_features=D, analyzer="char_wb", ngram_range=(2, 4), alternate_sign=False
)


def embed(texts: Sequence[str]) -> NDArray[np.float32]:
    """Return unit vectors, (n, D)."""
    return np.asarray(_pieces.transform(texts).toarray(), np.float32)


_model = LogisticRegression(C=10.0).fit(embed(TEXTS), COMPLAINTS)


def classify(texts: Sequence[str]) -> NDArray[np.int64]:
    """Return 1 for what the classifier takes for a complaint, 0 for anything else."""
    return np.asarray(_model.predict(embed(texts)), np.int64)
