"""
Text: which module does a sentence come from?
=============================================

TF-IDF features of sentences from scikit-learn's own documentation: sparse rows with thousands of
columns and few entries each. Sparse wide rows are fitted by dual coordinate ascent, a class per
thread.
"""

import importlib
import inspect
import re

import matplotlib.pyplot as plt
import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import ConfusionMatrixDisplay
from sklearn.model_selection import train_test_split
from sklearn.svm import LinearSVC

from marginpursuit import MarginPursuitClassifier

modules = ["cluster", "linear_model", "ensemble", "preprocessing", "metrics", "decomposition"]
texts, labels = [], []
for name in modules:
    module = importlib.import_module(f"sklearn.{name}")
    for public in module.__all__:
        doc = inspect.getdoc(getattr(module, public)) or ""
        sentences = [s for s in re.split(r"(?<=[.])\s+", doc) if len(s) > 40]
        texts += sentences
        labels += [name] * len(sentences)
y = np.array(labels)
train, test, y_train, y_test = train_test_split(texts, y, test_size=0.3, random_state=0, stratify=y)
vectoriser = TfidfVectorizer(sublinear_tf=True, min_df=2)
X_train, X_test = vectoriser.fit_transform(train), vectoriser.transform(test)
print(f"{X_train.shape[0]} sentences, {X_train.shape[1]} words")

for model in (LinearSVC(), MarginPursuitClassifier()):
    model.fit(X_train, y_train)
    print(f"{type(model).__name__:24s} error {100 * (1 - model.score(X_test, y_test)):.1f} %")

# %%
# The last model's confusion matrix.
fig, ax = plt.subplots(figsize=(6.5, 5.5), layout="constrained")
ConfusionMatrixDisplay.from_estimator(
    model, X_test, y_test, ax=ax, xticks_rotation=45, colorbar=False
)
plt.show()
