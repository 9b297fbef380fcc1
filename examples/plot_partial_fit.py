"""
A stream of rows
================

`partial_fit` updates a model as rows arrive, by Newton steps whose memory does not grow. Here the
error on held-out rows after each batch, and that of a fit to all rows at once.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import make_classification
from sklearn.linear_model import SGDClassifier

from marginpursuit import MarginPursuitClassifier

X, y = make_classification(21_000, 40, n_informative=15, class_sep=0.8, random_state=0)
X_test, y_test = X[20_000:], y[20_000:]
streams = {
    "MarginPursuit": MarginPursuitClassifier(),
    "SGDClassifier": SGDClassifier(loss="log_loss"),
}
fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
batches = range(0, 20_000, 500)
for name, model in streams.items():
    errors = []
    for start in batches:
        rows = slice(start, start + 500)
        model.partial_fit(X[rows], y[rows], classes=[0, 1])
        errors.append(100 * (1 - model.score(X_test, y_test)))
    ax.plot([start + 500 for start in batches], errors, label=name)
whole = MarginPursuitClassifier().fit(X[:20_000], y[:20_000])
ax.axhline(
    100 * (1 - whole.score(X_test, y_test)), color="black", linestyle=":", label="fit to all rows"
)
ax.set(xlabel="rows of the stream", ylabel="error on held-out rows, %")
ax.legend()
plt.show()
