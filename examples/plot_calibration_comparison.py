"""
Comparison of calibration
=========================

scikit-learn's comparison of calibration curves: 100,000 rows, of which 1,000 train each model,
since calibration shows only on many test rows. A well calibrated model lies on the diagonal.
"""

import matplotlib.pyplot as plt
from sklearn.calibration import CalibrationDisplay
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB

from marginpursuit import MarginPursuitClassifier, MarginPursuitClassifierCV

X, y = make_classification(100_000, 20, n_informative=2, n_redundant=2, random_state=42)
X_train, X_test, y_train, y_test = train_test_split(X, y, train_size=1000, random_state=42)

models = {
    "LogisticRegression": LogisticRegression(),
    "GaussianNB": GaussianNB(),
    "MarginPursuit, exact link": MarginPursuitClassifier(probability="exact"),
    "MarginPursuit": MarginPursuitClassifier(),
    "MarginPursuitCV": MarginPursuitClassifierCV(),
}
fig, ax = plt.subplots(figsize=(7, 6), layout="constrained")
for name, model in models.items():
    model.fit(X_train, y_train)
    loss = log_loss(y_test, model.predict_proba(X_test).clip(1e-6, 1 - 1e-6))
    CalibrationDisplay.from_estimator(
        model,
        X_test,
        y_test,
        n_bins=10,
        strategy="quantile",
        ax=ax,
        name=f"{name}: log-loss {loss:.3f}",
    )
plt.show()

# %%
# The exact link is exact for the best of *all* functions, not for a linear one fitted to a
# thousand rows. The default fits the link to scores of rows that a half fit did not use.
