"""
The candidates of a search
==========================

:class:`~marginpursuit.MarginPursuitClassifierCV` evaluates its candidates on growing subsamples
and eliminates those that are significantly worse. All folds and candidates share passes over the
data.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_breast_cancer

from marginpursuit import MarginPursuitClassifierCV
from marginpursuit.inspection import SelectionDisplay

X, y = load_breast_cancer(return_X_y=True)
model = MarginPursuitClassifierCV().fit(X, y)
print(model.best_params_, f"cross-validated accuracy {model.best_score_:.3f}")

fig, ax = plt.subplots(figsize=(8, 4.5), layout="constrained")
SelectionDisplay.from_estimator(model, ax=ax)
plt.show()
