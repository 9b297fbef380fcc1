"""
Five functions ρ
================

Catoni's ρ is the paper's choice. Its theory holds for other even convex functions with a bounded
derivative, which are available as `rho`. They differ in how the derivative ψ reaches its bound.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import cross_val_score

from marginpursuit import MarginPursuitClassifier
from marginpursuit.losses import RHOS, MarginLoss

u = np.linspace(-4, 4, 401)
fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
for name in RHOS:
    # With γ = s = 1 the residual is 1 - m, so ψ(u) = -φ'(1 - u).
    loss = MarginLoss(margin=1.0, scale=1.0, overconfidence=1.0, rho=name)
    ax.plot(u, -loss.derivative(1 - u), label=name)
ax.set(xlabel="residual divided by scale, u", ylabel="influence ψ(u)", ylim=(-2, 2))
ax.legend()
plt.show()

# %%
# On clean data the choice matters little.
X, y = load_breast_cancer(return_X_y=True)
for name in RHOS:
    error = 1 - cross_val_score(MarginPursuitClassifier(rho=name, probability=None), X, y).mean()
    print(f"{name:12s} cross-validated error {100 * error:.1f} %")
