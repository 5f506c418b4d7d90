from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

import cfe_faiss as cfe
from cfe_faiss.attributes.table import as_attributes
from cfe_faiss.audit import fine_tune
from cfe_faiss.base.text import summary
from cfe_faiss.datasets import load
from cfe_faiss.models import evaluate, gcn, train


@dataclass(frozen=True)
class Record:
    value: Any

    __repr__ = summary


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.zeros((1000, 3)), "float64 (1000, 3)"),
        (np.zeros(3, np.int32), "int32 (3,)"),
        (torch.zeros(2, 2), "float32 (2, 2)"),
        (pd.DataFrame({"a": [1, 2]}), "table of 2 lines"),
        (pl.DataFrame({"a": range(2000)}), "table of 2,000 lines"),
        (1 / 3, "0.3333"),
        (np.float32(1 / 3), "0.3333"),
        (np.int64(7), "7"),
        (float("nan"), "nan"),
        (12345, "12345"),
        ("text", "'text'"),
        (None, "None"),
        ((1, 2), "(1, 2)"),
        (tuple(range(100)), "tuple of 100"),
        (Record(0.5), "Record(value=0.5)"),
    ],
)
def test_values(value, text):
    assert repr(Record(value)) == f"Record(value={text})"


def test_what_users_see_is_short():
    data = load("patients")
    model = gcn(data)
    report = train(model, data, epochs=5)
    finder = cfe.EvidenceFinder.from_data(data, model)
    pairs = finder.top_pairs(100)
    shown = [
        report,
        evaluate(model, data),
        evaluate(data.y, data),
        fine_tune(finder, pairs=pairs, seeds=[0], epochs=2),
        finder,
        pairs,
        finder.local(),
        cfe.global_evidence(finder.index, 100),
        finder.graph,
        finder.attributes,
        as_attributes(data)["mean area"],
        finder.index.members(),
        cfe.EvidenceParameters(labels=finder.labels),
    ]
    for record in shown:
        text = repr(record)
        assert text.startswith(type(record).__name__ + "(")
        assert "array" not in text
        assert "\n" not in text
        assert len(text) < 330, text
