"""
Weights of the paper's index
============================

The paper clusters the vectors several times; in each time after the first, a vector counts the more, the farther it was
from its last centroid: one minus the overlap of two caps of angle theta around the two. In many dimensions caps share
almost nothing, and every weight is 1. Needs the extra ``plot``.
"""

import matplotlib.pyplot as plt
import numpy as np

from cfe_faiss.coarse.partitions import cap_weight

# %%
# The weight by the angle between a vector and its centroid, for theta = 60 degrees, the paper's, in as many dimensions
# as the paper's graphs have features: 18 in Bail, 27 in German, 128 in Facebook, 1,433 in Cora.

angles = np.linspace(0, 120, 241)
for d in (3, 18, 27, 128, 1433):
    plt.plot(angles, cap_weight(np.radians(angles), d), label=f"d = {d:,}")
plt.xlabel("angle between vector and centroid, in degrees")
plt.ylabel("weight")
plt.legend()
plt.grid(alpha=0.3)
plt.show()

# %%
# A smaller theta makes caps smaller, and weights reach 1 sooner. In 18 dimensions:

for theta in (20, 40, 60, 80):
    plt.plot(
        angles,
        cap_weight(np.radians(angles), 18, np.radians(theta)),
        label=f"theta = {theta} degrees",
    )
plt.xlabel("angle between vector and centroid, in degrees")
plt.ylabel("weight")
plt.legend()
plt.grid(alpha=0.3)
plt.show()
