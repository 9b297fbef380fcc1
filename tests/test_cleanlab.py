"""cleanlab with the out-of-fold probabilities of a search: no further fit is needed."""

import numpy as np
import pytest
from sklearn.datasets import load_iris, make_classification

from marginpursuit import MarginPursuitClassifierCV
from marginpursuit.inspection import label_issues

pytest.importorskip("cleanlab", reason="cleanlab is not installed")


@pytest.fixture(scope="module")
def fitted():
    X, y = load_iris(return_X_y=True)
    y[[3, 60, 140]] = [2, 0, 1]
    return X, y, MarginPursuitClassifierCV(cv=3, scales=(1.0,)).fit(X, y)


def test_find_label_issues_takes_out_of_fold_probabilities(fitted):
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores

    _, y, model = fitted
    ranked = find_label_issues(
        y, model.out_of_fold_proba_, return_indices_ranked_by="self_confidence", n_jobs=1
    )
    assert {3, 60} <= set(ranked[:4].tolist())
    ours = label_issues(y, model.out_of_fold_proba_, model.classes_)
    quality = get_label_quality_scores(y, model.out_of_fold_proba_)
    np.testing.assert_allclose(ours.label_quality, quality)


def test_confident_classes_are_those_of_cleanlab():
    """The thresholds of both are the mean probabilities of the given classes."""
    from cleanlab.count import get_confident_thresholds

    X, y = make_classification(300, 6, n_informative=4, n_classes=3, random_state=0)
    model = MarginPursuitClassifierCV(cv=3, scales=(1.0,)).fit(X, y)
    proba = model.out_of_fold_proba_
    own = [proba[y == k, k].mean() for k in range(3)]
    np.testing.assert_allclose(get_confident_thresholds(y, proba), own)


@pytest.mark.filterwarnings("ignore")  # cleanlab uses deprecated options of pandas
def test_datalab(fitted):
    pytest.importorskip("datasets", reason="datasets, which Datalab needs, is not installed")
    from cleanlab import Datalab

    X, y, model = fitted
    lab = Datalab({"X": X, "label": y}, label_name="label")
    lab.find_issues(pred_probs=model.out_of_fold_proba_, issue_types={"label": {}})
    found = lab.get_issues("label")
    ours = label_issues(y, model.out_of_fold_proba_, model.classes_).to_frame()
    assert {"is_label_issue", "given_label", "predicted_label"} <= set(found.columns)
    assert {"is_label_issue", "given_label", "predicted_label"} <= set(ours.columns)
    assert found["predicted_label"].tolist() == ours["predicted_label"].tolist()
    assert found["is_label_issue"][[3, 60]].all()
