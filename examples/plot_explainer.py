"""
Evidence beside GNNExplainer
============================

What matters for a patient's prediction, and whether it also tells the patient apart from the most similar ones that the
model classifies differently. Needs the extras ``gnn`` and ``plot``.
"""

import io

import matplotlib.pyplot as plt
import torch
from torch_geometric.explain import Explainer, GNNExplainer
from torch_geometric.nn.models import GCN

import cfe_faiss as cfe
from cfe_faiss.datasets import load
from cfe_faiss.integrations.pyg import explain_beside
from cfe_faiss.models import train

# %%
# A model and its evidence
# ------------------------
# 569 patients, each joined to the most similar others, classified by a GCN of two layers.

data = load("patients")
torch.manual_seed(0)
model = GCN(in_channels=30, hidden_channels=16, num_layers=2, out_channels=2)
print(train(model, data))

# %%
# The patient with the most similar counterpart of the other class: two nodes that are almost the same, and classified
# differently.

finder = cfe.EvidenceFinder.from_data(data, model)
node = int(finder.top_pairs(1).source[0])
print(finder.local([node], k=3).to_frame().to_string(index=False))

# %%
# Explain all of them
# -------------------
# PyG's explainer is run for the patient and for each patient of the evidence.

explainer = Explainer(
    model,
    GNNExplainer(epochs=100),
    explanation_type="model",
    node_mask_type="attributes",
    edge_mask_type="object",
    model_config={"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"},
)
explained = explain_beside(explainer, finder, data, node, k=3)
columns = ["evidence", "similarity", "shared_features", "explained_difference", "shared_edges"]
print(explained.to_frame(top=5)[columns].to_string(index=False))

# %%
# ``explained_difference`` is the share of the difference between two patients that lies in the 5 features that matter
# most for the first. Features picked at random would have 5 / 30 in the mean.
#
# The picture has the 8 most important features: how much they matter, as a bar for the patient and as numbers for the
# evidence; the values of all of them; and below the neighbours that the model reads from.

picture = io.BytesIO()
explained.figure(top=8).savefig(picture, dpi=150)
picture.seek(0)
drawn = plt.imread(picture)
plt.figure(figsize=(8, 8 * drawn.shape[0] / drawn.shape[1]))
plt.imshow(drawn)
plt.axis("off")
plt.tight_layout(pad=0)
plt.show()
