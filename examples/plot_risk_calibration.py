"""
From risk to error
==================

How much excess error can a small excess loss hide? The Ψ-transform of the paper answers exactly,
for each scale.
"""

import matplotlib.pyplot as plt
import numpy as np

from marginpursuit.calibration import psi_transform

excess = np.linspace(0, 1, 201)
fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
for scale in (0.3, 1.0, 3.0):
    values = np.array([psi_transform(u, margin=1.0, scale=scale) for u in excess])
    ax.plot(excess, values / values[-1], label=f"s = {scale:g}")
ax.set(xlabel="excess error", ylabel="least excess loss, relative to its maximum")
ax.legend()
plt.show()
