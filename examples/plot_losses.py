"""
The loss and its derivative
===========================

The loss of a row depends on its margin m and the margin level γ = 1. It is quadratic near γ and
linear far from it, so that the derivative, the influence of one row, is bounded. The scale s sets
where: at a distance of √2 s from γ.
"""

import matplotlib.pyplot as plt
import numpy as np

from marginpursuit.losses import MarginLoss

margins = np.linspace(-4, 4, 401)
fig, (values, slopes) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
for scale in (0.3, 1.0, 3.0):
    loss = MarginLoss(margin=1.0, scale=scale, overconfidence=1.0)
    values.plot(margins, loss.value(margins), label=f"s = {scale:g}")
    slopes.plot(margins, loss.derivative(margins), label=f"s = {scale:g}")
values.set(xlabel="margin m", ylabel="loss φ(m)", ylim=(0, 8))
slopes.set(xlabel="margin m", ylabel="derivative φ'(m)")
values.legend()

# %%
# `overconfidence` is the weight τ of margins above γ. With τ = 1 they cost as much as margins
# below, which is the loss of the paper. With τ = 0, the default, they cost nothing.
fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
for tau in (1.0, 0.3, 0.0):
    ax.plot(
        margins,
        MarginLoss(margin=1.0, scale=1.0, overconfidence=tau).value(margins),
        label=f"τ = {tau:g}",
    )
ax.set(xlabel="margin m", ylabel="loss φ(m)", ylim=(0, 5))
ax.legend()
plt.show()
