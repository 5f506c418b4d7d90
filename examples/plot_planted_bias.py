"""
An audit that finds a planted bias
==================================

Two models decide on the same applicants: one learnt from decisions that asked more of one sex, one from decisions that
did not. The evidence of the first differs in the sex far more often than chance would make it. Needs the extras ``gnn``
(for its tables) and ``plot``.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier

import cfe_faiss as cfe
from cfe_faiss import audit

# %%
# Applicants, decisions, models
# -----------------------------
# 3,000 made-up applicants. Past decisions asked for an income that covers the debt; the biased ones asked women for 12
# more. Each model sees everything, the sex included.

rng = np.random.default_rng(0)
n = 3000
people = pd.DataFrame(
    {
        "income": rng.gamma(10, 4, n).round(1),
        "debt": rng.gamma(2, 6, n).round(1),
        "age": rng.integers(18, 70, n),
        "sex": rng.integers(0, 2, n),  # 1: woman
    }
)
covered = people["income"] - people["debt"] + rng.normal(0, 2, n)
past = {"biased": covered > 20 + 12 * people["sex"], "fair": covered > 26}
predicted = {
    name: HistGradientBoostingClassifier(random_state=0)
    .fit(people[:1500], granted[:1500])
    .predict(people)
    .astype(int)
    for name, granted in past.items()
}

# %%
# Evidence by what should matter
# ------------------------------
# Who is alike is decided by the distance of income, debt and age, in standard deviations, and not by the sex. So
# evidence that differs in the sex more often than chance says that decisions depend on it.

finders, tables = {}, {}
for name, labels in predicted.items():
    finders[name] = cfe.EvidenceFinder.from_table(people, labels, sensitive=["sex"])
    tables[name] = audit.discrimination_scores(finders[name], bins=2)
    print(f"{name} model, women against men, selected:")
    rates = audit.group_metrics(y_pred=labels, sensitive_features=people["sex"], favourable=1)
    print(
        rates.table[["value", "count", "rate", "ratio", "verdict"]].round(2).to_string(index=False),
        end="\n\n",
    )

# %%
# What the scores say
# -------------------
# The discrimination score of a value is the share of evidence that lacks it. The figure shows the score minus its
# expectation for an attribute without influence. The biased model stands out by the sex. Income, debt and age are below
# 0 because they are part of the distance. The score is a description; ``audit.direct_effects`` has the tests.

figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharex=True, sharey=True)
for place, (name, scores) in zip(axes, tables.items(), strict=True):
    scores = scores.sort_values(["feature", "value"])
    names = [
        f"{feature} {value}"
        for feature, value in zip(scores["feature"], scores["value"], strict=True)
    ]
    place.scatter(scores["difference"], names, zorder=3)
    place.axvline(0, color="grey", linewidth=1)
    place.set_title(f"{name} model")
    place.set_xlabel("score less expected")
plt.tight_layout()
plt.show()

# %%
# The closest cases
# -----------------
# The two most similar pairs of a man and a woman whom the biased model decides differently, with debts at most 1 apart:
# what an auditor would show.

where = cfe.Constraints(antiexact=["sex"], caliper={"income": 1, "debt": 1}, replace=False)
pairs = finders["biased"].top_pairs(2, where=where)
for source, target in zip(pairs.source, pairs.target, strict=True):
    both = people.loc[[source, target]].assign(decision=predicted["biased"][[source, target]])
    print(both.to_string(), end="\n\n")
