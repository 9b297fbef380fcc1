"""
Outliers with leverage
======================

Five per cent of the rows lie far from the others and have the wrong label. The derivative of the
loss is bounded, but the gradient is this derivative times the row: its influence grows with the
distance. `leverage_bound`, on by default, limits it.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression

from marginpursuit import MarginPursuitClassifier

rng = np.random.default_rng(0)
n = 400
y = rng.integers(0, 2, n)
X = rng.normal(size=(n, 2)) + np.where(y[:, None] == 1, [1.2, 0.6], [-1.2, -0.6])
far = rng.choice(n, n // 20, replace=False)
X_bad, y_bad = X.copy(), y.copy()
X_bad[far] *= 10
y_bad[far] = 1 - y[far]

models = {
    "LogisticRegression": LogisticRegression(),
    "no leverage bound": MarginPursuitClassifier(leverage_bound=None),
    "MarginPursuitClassifier": MarginPursuitClassifier(),
}

# %%
# The lines are the decision boundaries after training on the contaminated rows, the errors those
# on clean rows.
X_test = rng.normal(size=(5000, 2))
y_test = rng.integers(0, 2, 5000)
X_test += np.where(y_test[:, None] == 1, [1.2, 0.6], [-1.2, -0.6])

fig, ax = plt.subplots(figsize=(7, 5), layout="constrained")
ax.scatter(*X_bad.T, c=y_bad, cmap="coolwarm", s=12, alpha=0.7)
across = np.linspace(-6, 6, 2)
for name, model in models.items():
    model.fit(X_bad, y_bad)
    (a, b), c = model.coef_[0], model.intercept_[0]
    error = 100 * (1 - model.score(X_test, y_test))
    ax.plot(across, -(a * across + c) / b, label=f"{name}: {error:.1f} %")
ax.set(xlim=(-6, 6), ylim=(-6, 6), title="Error on clean rows after training on contaminated rows")
ax.legend(loc="upper right")
plt.show()
