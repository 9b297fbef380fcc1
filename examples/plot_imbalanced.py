"""
Imbalanced classes
==================

Two per cent positive rows. Accuracy says little here; the precision-recall curve and the balanced
accuracy say more. `class_weight="balanced"` moves the boundary, and the probabilities follow the
weighted data.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import PrecisionRecallDisplay, balanced_accuracy_score
from sklearn.model_selection import train_test_split

from marginpursuit import MarginPursuitClassifier

X, y = make_classification(
    20_000, 30, n_informative=6, weights=[0.98], flip_y=0.005, random_state=1
)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0, stratify=y)
models = {
    "LogisticRegression": LogisticRegression(),
    "MarginPursuit": MarginPursuitClassifier(),
    "MarginPursuit, balanced": MarginPursuitClassifier(class_weight="balanced"),
}
fig, ax = plt.subplots(figsize=(7, 5), layout="constrained")
for name, model in models.items():
    model.fit(X_train, y_train)
    balanced = balanced_accuracy_score(y_test, model.predict(X_test))
    PrecisionRecallDisplay.from_estimator(
        model, X_test, y_test, ax=ax, name=f"{name}, balanced accuracy {balanced:.2f}"
    )
ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.15), fontsize=9)
plt.show()
