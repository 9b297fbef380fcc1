"""
Curved boundaries: kernels
==========================

Two interleaved half circles. A linear score cannot follow them. With the kernel "rbf" the same loss
and penalty draw a curved boundary, by default with all rows as landmarks. Twenty landmarks, marked
by crosses, draw nearly the same one. The search also chooses `gamma`. Shades are probabilities.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons

from marginpursuit import MarginPursuitClassifier, MarginPursuitClassifierCV

X, y = make_moons(800, noise=0.25, random_state=0)
models = {
    "linear": MarginPursuitClassifier(),
    "rbf": MarginPursuitClassifier(kernel="rbf"),
    "rbf, 20 landmarks": MarginPursuitClassifier(kernel="rbf", n_components=20),
    "rbf, search": MarginPursuitClassifierCV(kernel="rbf"),
}
fig, axes = plt.subplots(1, 4, figsize=(13, 3.4), sharey=True, layout="constrained")
across, up = np.meshgrid(np.linspace(-1.8, 2.8, 150), np.linspace(-1.4, 1.9, 100))
grid = np.column_stack([across.ravel(), up.ravel()])
for ax, (name, model) in zip(axes, models.items(), strict=True):
    model.fit(X[:400], y[:400])
    proba = model.predict_proba(grid)[:, 1].reshape(across.shape)
    ax.contourf(across, up, proba, levels=np.linspace(0, 1, 11), cmap="RdBu", alpha=0.7)
    ax.contour(across, up, model.decision_function(grid).reshape(across.shape), [0], colors="k")
    ax.scatter(*X[400:].T, c=y[400:], s=4, cmap="RdBu", edgecolors="0.3", linewidths=0.2)
    if getattr(model, "n_components", None):
        ax.scatter(*model.support_vectors_.T, marker="x", c="k", s=25)
    ax.set_title(f"{name}: error {100 * (1 - model.score(X[400:], y[400:])):.1f} %")
plt.show()
