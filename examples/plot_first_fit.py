"""
The margin distribution of a fit
================================

One fit with default parameters, and the picture that explains it: how far each held-out row is on
the right side of the boundary.

The *margin* of a row is its score times its class (±1). Positive margins are correct predictions.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from marginpursuit import MarginPursuitClassifier
from marginpursuit.inspection import MarginDistributionDisplay

X, y = load_breast_cancer(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0, stratify=y)

model = MarginPursuitClassifier().fit(X_train, y_train)
error = 100 * (1 - model.score(X_test, y_test))
print(f"test error {error:.1f} %, {model.n_passes_} passes over the data")

# %%
# Rows left of zero are misclassified. The loss penalises margins below the level γ = 1; with the
# default `overconfidence=0` larger margins cost nothing.
fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
MarginDistributionDisplay.from_estimator(model, X_test, y_test, ax=ax)
plt.show()
