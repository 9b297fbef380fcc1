"""
Solvers at work
===============

The mean loss after each number of iterations, for three solvers of the same problem. The Gram
matrix bounds every Hessian of the loss, so that a preconditioned method needs a handful of passes
over the data.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_breast_cancer

from marginpursuit import MarginPursuitClassifier
from marginpursuit.inspection import ConvergenceDisplay

X, y = load_breast_cancer(return_X_y=True)
fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
for solver in ("gram", "lbfgs", "steepest"):
    model = MarginPursuitClassifier(solver=solver, probability=None)
    ConvergenceDisplay.from_estimator(model, X, y, ax=ax, steps=[1, 2, 4, 8, 16, 32], name=solver)
ax.set_yscale("log")
ax.legend()
plt.show()
