"""
An audit of a graph model of one's own
======================================

A model to audit, and ten lines that audit it. The model decides on the loans of 2,000 made-up applicants who know one
another; it learnt from past decisions, which asked more of one sex. Needs the extra ``gnn``.
"""

# sphinx_gallery_thumbnail_path = "_static/thumb_audit_own_model.svg"

import numpy as np
import torch
from torch.nn.functional import cross_entropy, dropout
from torch_geometric.data import Data
from torch_geometric.nn import SAGEConv

import cfe_faiss as cfe
from cfe_faiss import audit

# %%
# The graph
# ---------
# Applicants know others of their age. Their features are standardised for the model; ``x_raw`` and ``feature_names``
# tell the audit what they are in their own units.

rng = np.random.default_rng(0)
n = 2000
income, debt = rng.normal(40, 12, n).round(1), rng.gamma(2, 6, n).round(1)
age, sex = rng.integers(18, 80, n), rng.integers(0, 2, n)
granted = income - debt - 20 * sex + rng.normal(0, 3, n) > 22
knows = [
    rng.choice(n, 3, p=weight / weight.sum()) for weight in np.exp(-np.abs(age[:, None] - age) / 3)
]
edges = torch.tensor(np.stack([np.repeat(np.arange(n), 3), np.concatenate(knows)]))
raw = torch.tensor(np.stack([income, debt, age, sex], axis=1), dtype=torch.float32)
edge_index = torch.cat([edges, edges.flip(0)], dim=1)
data = Data(
    x=(raw - raw.mean(0)) / raw.std(0), edge_index=edge_index, y=torch.tensor(granted).long()
)
data.x_raw, data.feature_names = raw, ["income", "debt", "age", "sex"]
part = torch.tensor(rng.permutation(n) % 4)
data.train_mask, data.val_mask, data.test_mask = part < 2, part == 2, part == 3

# %%
# The model
# ---------
# Any module that is called as ``model(x, edge_index)``; nothing in it knows of the audit.


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = SAGEConv(4, 16), SAGEConv(16, 2)

    def forward(self, x, edge_index):
        hidden = dropout(self.first(x, edge_index).relu(), 0.3, self.training)
        return self.second(hidden, edge_index)


def show(frame):
    print(frame.round(3).to_string(index=False), end="\n\n")


torch.manual_seed(0)
model = Model()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(100):
    optimizer.zero_grad()
    logits = model(data.x, data.edge_index)
    cross_entropy(logits[data.train_mask], data.y[data.train_mask]).backward()
    optimizer.step()

# %%
# The audit
# ---------
# The similarity does not depend on the sex here. If evidence differs in the sex, the model depends on it.

finder = cfe.EvidenceFinder.from_data(data, model, without=["sex"], nodes=data.test_mask)
# %%
# Among the single attributes, evidence differs in the sex far more often than expected: its ``difference`` is largest.

show(audit.discrimination_scores(finder, bins={"age": [30, 60]}, intersections=[("sex", "age")]))

# %%
# Share of nodes that are treated differently from the most similar node, and its expectation for exchanged classes:

show(audit.consistency(finder, columns=["sex"]))

# %%
# Accuracy among the nodes of the closest pairs, against the overall one:

show(audit.error_rate_by_evidence(finder, ks=[10, 50, 200]))

# %%
# Training on with the nodes of the 50 closest pairs, against the same training without them:

show(audit.fine_tune(finder, pairs=finder.top_pairs(50), seeds=range(3), epochs=20).summary)
