"""
Data larger than memory
=======================

Rows in a file are read in blocks. The number of passes is what costs time, and a fit needs few.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_classification

from marginpursuit import MarginPursuitClassifier
from marginpursuit.blocks import from_npy

X, y = make_classification(200_000, 30, n_informative=8, n_redundant=0, random_state=0)
folder = Path(tempfile.mkdtemp())
np.save(folder / "X.npy", X)

blocks = from_npy(folder / "X.npy")
from_file = MarginPursuitClassifier(probability=None).fit(blocks, y)
in_memory = MarginPursuitClassifier(probability=None).fit(X, y)
print(
    f"{from_file.n_passes_} passes over the file; largest difference of the coefficients "
    f"{abs(from_file.coef_ - in_memory.coef_).max():.1e}"
)

# %%
# Passes over the data at different tolerances.
tolerances = [1e-2, 1e-4, 1e-6, 1e-8]
passes = [
    MarginPursuitClassifier(probability=None, tol=tol).fit(blocks, y).n_passes_
    for tol in tolerances
]
fig, ax = plt.subplots(figsize=(6, 3.5), layout="constrained")
ax.semilogx(tolerances, passes, "o-")
ax.set(
    xlabel="tol: relative distance from the minimum", ylabel="passes over the data", ylim=(0, None)
)
plt.show()
