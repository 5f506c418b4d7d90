"""The test patients most similar to one that a classifier treats differently, on breast cancer data.

Run it with ``python examples/sklearn_neighbors.py``; it needs nothing beyond cfe-faiss itself.
"""

from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

import cfe_faiss as cfe

data = load_breast_cancer()
X_train, X_test, y_train, _ = train_test_split(data.data, data.target_names[data.target], random_state=0)

scaler = StandardScaler().fit(X_train)
X_train, X_test = scaler.transform(X_train), scaler.transform(X_test)
classifier = LogisticRegression().fit(X_train, y_train)

# What the classifier says counts, not the diagnosis: the evidence is about the classifier.
neighbors = cfe.EvidenceNeighbors(n_neighbors=3).fit(X_train, classifier.predict(X_train))
predicted = classifier.predict(X_test)
distances, indices = neighbors.kneighbors(X_test, predicted)

print("The test patients closest to a training patient that the classifier treats differently:")
for patient in distances[:, 0].argsort()[:5]:
    found = ", ".join(
        f"patient {i} at {distance:.3f}" for i, distance in zip(indices[patient], distances[patient], strict=True)
    )
    print(f"test patient {patient} is predicted {predicted[patient]}; the other class: {found}")

patient = distances[:, 0].argmin()
other = indices[patient, 0]
difference = X_test[patient] - X_train[other]
print(f"\nWhere test patient {patient} and patient {other} differ most (in standard deviations):")
for feature in abs(difference).argsort()[:-4:-1]:
    print(f"  {data.feature_names[feature]}: {difference[feature]:+.2f}")
