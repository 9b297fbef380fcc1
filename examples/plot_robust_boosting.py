"""
Boosting with a robust loss
===========================

Gradient boosting with the margin loss in place of log-loss, by
:func:`~marginpursuit.interop.lightgbm_objective`, while 20 % of the training labels are wrong.

No loss of a flexible learner ignores wrong labels: trees that are added late fit them, one by one.
With ``overconfidence=1`` margins above the level cost too, and the error on clean rows rises later.
:doc:`/tutorials/other_learners` has what the loss gains and costs with other libraries and data.
"""

import matplotlib.pyplot as plt
import numpy as np
from lightgbm import LGBMClassifier
from sklearn.datasets import make_classification
from sklearn.model_selection import train_test_split

from marginpursuit.interop import lightgbm_objective

options = {"n_estimators": 150, "num_leaves": 15, "verbose": -1, "n_jobs": 1}
models = {
    "log-loss": LGBMClassifier(**options),
    "margin loss": LGBMClassifier(objective=lightgbm_objective(overconfidence=1.0), **options),
}
numbers = np.arange(10, 151, 10)

# %%
# With an objective of its own LightGBM predicts raw scores, whose sign is the class. The error on
# clean rows is the mean over three data sets.
errors = {name: np.zeros(len(numbers)) for name in models}
for seed in range(3):
    X, y = make_classification(3000, 20, n_informative=8, class_sep=1.5, random_state=seed)
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.5, random_state=seed)
    wrong = np.random.default_rng(seed).random(len(y_train)) < 0.2
    flipped = np.where(wrong, 1 - y_train, y_train)
    for name, model in models.items():
        model.fit(X_train, flipped)
        for k, number in enumerate(numbers):
            scores = model.predict(X_test, raw_score=True, num_iteration=number)
            errors[name][k] += 100 * np.mean((scores > 0) != y_test) / 3

fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
for name, values in errors.items():
    ax.plot(numbers, values, label=name)
ax.set(xlabel="trees", ylabel="error on clean rows, %", ylim=(0, None))
ax.legend()
plt.show()
