"""
Evidence of a scikit-learn classifier
=====================================

The test patients that are most similar to one whom a classifier treats differently, on scikit-learn's breast-cancer
data, and what such pairs tell of the classifier. Needs the extra ``plot``.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import cfe_faiss as cfe

# %%
# The classifier is the ``estimator`` of :class:`cfe_faiss.EvidenceNeighbors`: ``fit`` fits it, and what it *predicts*
# are the labels, not the diagnoses. Scaled features make distances comparable; they come first in the pipeline.

data = load_breast_cancer()
names = data.target_names[data.target]
X_train, X_test, y_train, y_test = train_test_split(data.data, names, random_state=0)

pipeline = make_pipeline(
    StandardScaler(), cfe.EvidenceNeighbors(n_neighbors=3, estimator=LogisticRegression())
)
pipeline.fit(X_train, y_train)
scaler, neighbors = pipeline

# %%
# ``kneighbors`` finds the training patients of the other predicted class.

scaled = scaler.transform(X_test)
predicted = neighbors.estimator_.predict(scaled)
distances, indices = neighbors.kneighbors(scaled)

closest = distances[:, 0].argsort()
print("The test patients closest to a training patient whom the classifier treats differently:")
for patient in closest[:5]:
    pairs = zip(indices[patient], distances[patient], strict=True)
    found = ", ".join(f"{i} at {distance:.3f}" for i, distance in pairs)
    print(
        f"  test patient {patient} is predicted {predicted[patient]}; of the other class: {found}"
    )

# %%
# Where do the two patients of the closest pair differ?

patient, other = closest[0], indices[closest[0], 0]
difference = scaled[patient] - scaler.transform(X_train[[other]])[0]
print(f"Test patient {patient} against patient {other}, in standard deviations:")
for feature in abs(difference).argsort()[:-4:-1]:
    print(f"  {data.feature_names[feature]}: {difference[feature]:+.2f}")

# %%
# As the last step of the pipeline it is a transformer: the distances to the evidence, one column for each neighbour.
# Patients whose evidence is near are those on whom the classifier errs.

nearest = pipeline.transform(X_test)[:, 0]
wrong = predicted != y_test
print(f"errors of the classifier on {len(wrong)} test patients: {wrong.sum()}")
print(
    f"... among the quarter with the nearest evidence: {wrong[nearest <= np.quantile(nearest, 0.25)].sum()}"
)

figure, axes = plt.subplots(layout="constrained")
bins = np.linspace(0, nearest.max(), 25)
axes.hist([nearest[~wrong], nearest[wrong]], bins, stacked=True, label=["right", "wrong"])
axes.set(xlabel="cosine distance to the nearest patient of the other class", ylabel="test patients")
axes.legend(title="The classifier is")
plt.show()
