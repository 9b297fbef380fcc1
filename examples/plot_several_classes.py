"""
Several classes: joint loss and one against the rest
====================================================

Five classes in a row. No line separates a middle class from all others, so one-against-the-rest
fits give it a poor score. The joint loss, the default for three classes or more, compares scores
with each other.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression

from marginpursuit import MarginPursuitClassifier

rng = np.random.default_rng(0)
y = rng.integers(0, 5, 3000)
X = np.column_stack([y + 0.35 * rng.normal(size=3000), rng.normal(size=3000)])
models = {
    "one against the rest": MarginPursuitClassifier(multi_class="ovr"),
    "joint (default)": MarginPursuitClassifier(),
    "LogisticRegression": LogisticRegression(),
}
fig, axes = plt.subplots(1, 3, figsize=(11, 3.5), sharey=True, layout="constrained")
across, up = np.meshgrid(np.linspace(-1, 5, 200), np.linspace(-3, 3, 50))
for ax, (name, model) in zip(axes, models.items(), strict=True):
    model.fit(X[:1500], y[:1500])
    regions = model.predict(np.column_stack([across.ravel(), up.ravel()])).reshape(across.shape)
    ax.contourf(across, up, regions, levels=np.arange(-0.5, 5), cmap="viridis", alpha=0.5)
    ax.scatter(*X[1500:].T, c=y[1500:], s=3, cmap="viridis")
    ax.set_title(f"{name}: error {100 * (1 - model.score(X[1500:], y[1500:])):.1f} %")
plt.show()
