"""
From scores to probabilities
============================

The two links of :class:`~marginpursuit.MarginPursuitClassifier`, and the observed frequencies that
they should match.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_classification

from marginpursuit import MarginPursuitClassifier

X, y = make_classification(40_000, 20, n_informative=5, class_sep=0.7, flip_y=0.1, random_state=0)
X_train, y_train, X_test, y_test = X[:1000], y[:1000], X[1000:], y[1000:]

fig, ax = plt.subplots(figsize=(7, 4.5), layout="constrained")
for probability in ("exact", "held_out"):
    model = MarginPursuitClassifier(probability=probability).fit(X_train, y_train)
    scores = model.decision_function(X_test)
    order = np.argsort(scores)
    ax.plot(scores[order], model.predict_proba(X_test)[order, 1], label=probability)

# %%
# Dots: fraction of positive rows in thirty bins of equal size.
bins = np.array_split(order, 30)
ax.plot([scores[b].mean() for b in bins], [y_test[b].mean() for b in bins], "k.", label="observed")
ax.set(xlabel="score", ylabel="probability of class 1", xlim=np.quantile(scores, [0.005, 0.995]))
ax.legend()
plt.show()
