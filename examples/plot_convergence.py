"""
Solvers at work
===============

The relative distance of the objective from its minimum after each number of iterations, for four
solvers of the same problem. The Gram matrix bounds every Hessian of the loss: preconditioned by
it, a quasi-Newton method needs few passes over the data. Steepest descent is the algorithm of the
paper.
"""

import warnings

import matplotlib.pyplot as plt
from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import ConvergenceWarning

from marginpursuit import MarginPursuitClassifier

X, y = load_breast_cancer(return_X_y=True)


def objective(solver, max_iter, tol=1e-12):
    """Return the objective after some iterations."""
    model = MarginPursuitClassifier(
        solver=solver, alpha=1e-3, probability=None, max_iter=max_iter, tol=tol
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the limit ends the fit early
        return model.fit(X, y).objective_


# %%
# The ordinate is cut at 1e-10, beyond which rounding decides.
minimum = objective("newton", max_iter=1000)
steps = [1, 2, 4, 8, 16, 32, 64]
fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
for solver in ("newton", "gram", "lbfgs", "steepest"):
    gaps = [max(objective(solver, n) / minimum - 1, 1e-10) for n in steps]
    ax.loglog(steps, gaps, "o-", label=solver)
ax.set(xlabel="iterations", ylabel="(objective - minimum) / minimum")
ax.legend()
plt.show()
