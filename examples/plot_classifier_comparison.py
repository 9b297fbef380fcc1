"""
Classifier comparison
=====================

scikit-learn's comparison of classifiers on three toy data sets, with the estimators of this
library next to scikit-learn's. Linear boundaries suit the third data set only; for the others the
columns are mapped by a Nyström approximation of a radial basis function kernel first.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_circles, make_classification, make_moons
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from marginpursuit import MarginPursuitClassifier, MarginPursuitClassifierCV

rng = np.random.RandomState(2)
X, y = make_classification(n_features=2, n_redundant=0, random_state=1, n_clusters_per_class=1)
data = {
    "moons": make_moons(noise=0.3, random_state=0),
    "circles": make_circles(noise=0.2, factor=0.5, random_state=1),
    "linear": (X + 2 * rng.uniform(size=X.shape), y),
}


def features():
    """Return a map to 50 kernel features."""
    return Nystroem(gamma=1.0, n_components=50, random_state=0)


models = {
    "LogisticRegression": LogisticRegression(),
    "MarginPursuit": MarginPursuitClassifier(),
    "SVC, rbf": SVC(gamma=2, C=1),
    "Nyström +\nLogisticRegression": make_pipeline(features(), LogisticRegression()),
    "Nyström +\nMarginPursuit": make_pipeline(features(), MarginPursuitClassifier()),
    "Nyström +\nMarginPursuitCV": make_pipeline(features(), MarginPursuitClassifierCV()),
}

# %%
# Shades are probabilities (scores of the support vector machine), numbers accuracies on held-out
# rows.
fig, axes = plt.subplots(len(data), len(models), figsize=(12, 6), layout="constrained")
for row, (name, (X, y)) in zip(axes, data.items(), strict=True):
    X = StandardScaler().fit_transform(X)
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.4, random_state=42)
    side = np.linspace(-3, 3, 60)
    grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    for ax, (title, model) in zip(row, models.items(), strict=True):
        model.fit(X_train, y_train)
        if hasattr(model, "predict_proba"):
            shade = model.predict_proba(grid)[:, 1]
        else:
            shade = model.decision_function(grid)
        ax.contourf(side, side, shade.reshape(60, 60), cmap="RdBu", levels=20, alpha=0.8)
        ax.scatter(*X_test.T, c=y_test, cmap="RdBu", s=12, edgecolors="black", linewidths=0.4)
        ax.set(xticks=(), yticks=())
        ax.text(2.8, -2.8, f"{model.score(X_test, y_test):.2f}", ha="right", weight="bold")
        if name == "moons":
            ax.set_title(title, fontsize=9)
    row[0].set_ylabel(name)
plt.show()
