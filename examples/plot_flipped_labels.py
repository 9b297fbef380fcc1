"""
Wrong labels
============

The error on clean rows as more and more training labels are flipped at random.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from marginpursuit import MarginPursuitClassifier

X, y = load_breast_cancer(return_X_y=True)
models = {
    "MarginPursuitClassifier": MarginPursuitClassifier(probability=None),
    "LogisticRegression": make_pipeline(StandardScaler(), LogisticRegression()),
    "LinearSVC": make_pipeline(StandardScaler(), LinearSVC(max_iter=20000)),
}
rates = np.array([0.0, 0.05, 0.1, 0.2, 0.3])
errors = {name: np.empty((len(rates), 10)) for name in models}
for seed in range(10):
    X_train, X_test, y_train, y_test = train_test_split(
        X, y, test_size=0.4, random_state=seed, stratify=y
    )
    order = np.random.default_rng(seed).permutation(len(y_train))
    for i, rate in enumerate(rates):
        flipped = y_train.copy()
        wrong = order[: round(rate * len(order))]
        flipped[wrong] = 1 - flipped[wrong]
        for name, model in models.items():
            errors[name][i, seed] = 100 * (1 - model.fit(X_train, flipped).score(X_test, y_test))

# %%
# Mean over ten splits, with standard errors.
fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
for name, values in errors.items():
    ax.errorbar(
        100 * rates,
        values.mean(axis=1),
        values.std(axis=1, ddof=1) / np.sqrt(10),
        label=name,
        capsize=3,
    )
ax.set(xlabel="flipped training labels, %", ylabel="error on clean rows, %", ylim=(0, None))
ax.legend()
plt.show()
