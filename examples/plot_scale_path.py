"""
The scale, from absolute to square loss
=======================================

A small scale makes the loss nearly absolute, a large one nearly square. The path of a fit over
scales shows how the margins respond.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_breast_cancer

from marginpursuit import MarginPursuitClassifier
from marginpursuit.inspection import ScalePathDisplay

X, y = load_breast_cancer(return_X_y=True)
fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
ScalePathDisplay.from_estimator(
    MarginPursuitClassifier(overconfidence=1.0, probability=None), X, y, ax=ax
)
plt.show()
