"""The summary of a fit, in text and in notebooks."""

import numpy as np
import pytest
import sklearn
from sklearn.datasets import load_iris

from marginpursuit import (
    LDMClassifier,
    MarginPursuitClassifier,
    MarginPursuitClassifierCV,
    PegasosClassifier,
)

X, Y = load_iris(return_X_y=True)


def test_a_search_tells_its_score_choice_and_passes():
    model = MarginPursuitClassifierCV(cv=2, scoring="balanced_accuracy").fit(X, Y)
    text = model.summary()
    assert text.startswith("MarginPursuitClassifierCV, fitted to 4 columns and 3 classes. ")
    assert f"Cross-validated balanced_accuracy {model.best_score_:.4g}." in text
    assert f"scale {model.best_params_['scale']:.4g}" in text
    assert text.endswith(f"{int(model.n_passes_):,} passes over the data.")


@pytest.mark.parametrize("kind", [MarginPursuitClassifier, LDMClassifier, PegasosClassifier])
def test_other_classifiers_have_a_summary(kind):
    assert kind().summary() == f"{kind.__name__}, not fitted."
    text = kind().fit(X[50:], Y[50:]).summary()
    assert text.startswith(f"{kind.__name__}, fitted to 4 columns and 2 classes.")
    assert "Cross-validated" not in text


def test_notebooks_show_the_summary_above_the_diagram():
    model = MarginPursuitClassifier().fit(X, np.array(["<b>", "c", "d"])[Y])
    bundle = model._repr_mimebundle_()
    assert bundle["text/html"].startswith("<p>MarginPursuitClassifier, fitted to 4 columns")
    assert "sk-" in bundle["text/html"]
    assert bundle["text/plain"] == repr(model)
    assert model._repr_html_().startswith("<p>MarginPursuitClassifier, fitted to")
    with sklearn.config_context(display="text"):
        assert "text/html" not in model._repr_mimebundle_()
        assert not hasattr(model, "_repr_html_")
