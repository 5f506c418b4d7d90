"""FairGNN: less difference between groups, from few attributes, and none that was not disclosed."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from weights import equal, weights

from cfe_faiss.models import evaluate, gcn, predict, train

sys.path.append(str(Path(__file__).parents[2] / "benchmarks" / "paper"))
from fair_models import fairgnn, train_fair


@pytest.fixture(scope="module")
def biased():
    """Two groups; the class follows the group in part, edges join the same class; features tell both."""
    rng = np.random.default_rng(0)
    n = 1200
    s = rng.integers(0, 2, n)
    y = (rng.random(n) < np.where(s == 1, 0.65, 0.35)).astype(np.int64)
    x = np.column_stack([y + rng.normal(0, 0.7, n), s + rng.normal(0, 0.2, n), rng.normal(0, 1, n)])
    ring = np.argsort(y, kind="stable")
    edges = np.hstack([[ring, np.roll(ring, 1)], [np.roll(ring, 1), ring]])
    split = rng.integers(0, 3, n)
    return Data(
        x=torch.tensor(x, dtype=torch.float32),
        edge_index=torch.tensor(edges),
        y=torch.tensor(y),
        sensitive=torch.tensor(s),
        **{
            f"{name}_mask": torch.tensor(split == i)
            for i, name in enumerate(("train", "val", "test"))
        },
    )


def test_fairer_than_a_gcn_with_few_known_attributes(biased):
    plain, fair = gcn(biased), fairgnn(biased)
    train(plain, biased, lr=0.05, epochs=80)
    report = train_fair(fair, biased, known=50, alpha=20, epochs=60)
    before, after = evaluate(plain, biased), evaluate(fair, biased)
    assert after.parity_difference < 0.6 * before.parity_difference
    assert after.accuracy > 0.55
    assert report.test_accuracy == pytest.approx(after.accuracy)


@pytest.mark.parametrize("estimator", ["gcn", "sage"])
def test_without_weights_it_is_a_classifier(biased, estimator):
    fair = fairgnn(biased, estimator=estimator)
    report = train_fair(fair, biased, alpha=0, beta=0, epochs=20)
    assert report.test_accuracy > 0.75
    assert fair(biased.x, biased.edge_index).shape == (1200, 2)
    assert predict(fair, biased).shape == (1200,)


def test_no_attribute_is_read_that_was_not_disclosed(biased):
    known = torch.zeros(1200, dtype=torch.bool)
    known[:60] = True
    hidden = biased.clone()
    hidden.sensitive = torch.where(known, biased.sensitive, 1 - biased.sensitive)
    results = []
    for data in (biased, hidden):
        model = fairgnn(data)
        results.append((train_fair(model, data, known=known, epochs=5), weights(model)))
    assert results[0][0] == results[1][0]
    assert equal(results[0][1], results[1][1])


def test_a_resumed_training_ends_as_if_never_interrupted(biased, tmp_path):
    def run(checkpoint, calls=-1):
        model = fairgnn(biased)
        count = iter(range(1, 1000))

        def stop(*_):
            if next(count) == calls:
                raise KeyboardInterrupt

        model.backbone.register_forward_hook(stop)
        return train_fair(model, biased, known=50, epochs=12, checkpoint=checkpoint), weights(model)

    expected = run(None)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "state", calls=17)
    report, found = run(tmp_path / "state")
    assert report == expected[0]
    assert equal(found, expected[1])
    with pytest.raises(ValueError, match="must come from the same training"):
        train_fair(fairgnn(biased), biased, known=51, epochs=12, checkpoint=tmp_path / "state")
