import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.svm import LinearSVC

from marginpursuit import MarginPursuitClassifier, MarginPursuitClassifierCV
from marginpursuit.inspection import MarginDistributionDisplay, SelectionDisplay
from marginpursuit.location import catoni_location

pytest.importorskip("matplotlib", reason="pictures need the extra plot")


def test_margins_of_two_classes():
    X, y = load_breast_cancer(return_X_y=True)
    model = MarginPursuitClassifier(margin=2.0).fit(X, y)
    display = MarginDistributionDisplay.from_estimator(model, X, y)
    expected = np.where(y == 1, 1, -1) * model.decision_function(X)
    np.testing.assert_array_equal(display.margins, expected)
    assert display.level == 2.0
    assert display.location == catoni_location(expected, model.scale_)
    np.testing.assert_allclose(display.location, model.margin_location_[0], rtol=1e-12)


def test_margins_of_several_classes():
    X, y = load_iris(return_X_y=True)
    names = np.array(["a", "b", "c"])[y]
    model = MarginPursuitClassifier().fit(X, names)
    display = MarginDistributionDisplay.from_estimator(model, X, names)
    expected = np.where(names[:, None] == model.classes_, 1, -1) * model.decision_function(X)
    np.testing.assert_array_equal(display.margins, expected.ravel())


def test_picture_shows_density_level_and_location():
    margins = np.random.default_rng(0).normal(size=500)
    display = MarginDistributionDisplay(margins, level=1.0, scale=1.0, name="a fit").plot(bins=20)
    data = display.bars_.get_data()
    np.testing.assert_allclose(np.sum(data.values * np.diff(data.edges)), 1.0)
    marked = {round(line.get_xdata()[0], 12) for line in display.ax_.lines}
    assert marked == {0.0, 1.0, round(display.location, 12)}
    assert display.ax_.get_legend().get_texts()[0].get_text() == "a fit"
    assert display.figure_ is display.ax_.figure


def test_draws_on_given_axes_and_without_legend():
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    display = MarginDistributionDisplay([0.5, 1.0], level=1.0, scale=1.0).plot(ax=axes)
    assert display.ax_ is axes
    assert axes.get_legend() is None


def test_heavy_tails_do_not_ask_for_endless_bins():
    margins = np.concatenate([np.random.default_rng(0).normal(size=1000), [1e9]])
    display = MarginDistributionDisplay(margins, level=1.0, scale=1.0).plot()
    assert len(display.bars_.get_data().values) <= 200


def test_other_estimators_have_level_one():
    X, y = load_breast_cancer(return_X_y=True)
    model = LinearSVC().fit(X / X.max(axis=0), y)
    display = MarginDistributionDisplay.from_estimator(model, X / X.max(axis=0), y)
    assert display.level == display.scale == 1.0
    assert display.name == "LinearSVC"


@pytest.mark.parametrize(
    ("y_true", "scores", "message"),
    [
        ([0, 1, 2], [0.1, 0.2, 0.3], r"not in classes: \[2\]"),
        ([0, 1], [0.1, 0.2, 0.3], r"must have shape \(2,\).*got \(3,\)"),
        ([0, 1], [0.1, np.nan], "NaN"),
    ],
)
def test_bad_input(y_true, scores, message):
    with pytest.raises(ValueError, match=message):
        MarginDistributionDisplay.from_predictions(y_true, scores, classes=[0, 1])


class TestSelectionDisplay:
    """Errors over scale and overconfidence."""

    PARAMS = (
        {"alpha": 0.1, "overconfidence": 1.0, "scale": 3.0},
        {"alpha": 0.2, "overconfidence": 1.0, "scale": 3.0},
        {"alpha": 0.1, "overconfidence": 0.0, "scale": 0.5},
    )

    def test_each_cell_has_its_best_penalty(self):
        display = SelectionDisplay.from_predictions(
            list(self.PARAMS), [0.8, 0.9, 0.7], chosen=(3.0, 1.0)
        )
        assert_allclose(display.errors, [[0.3, np.nan], [np.nan, 0.1]])
        assert_allclose(display.alphas, [[0.1, np.nan], [np.nan, 0.2]])
        texts = [text.get_text() for text in display.ax_.texts]
        assert texts == ["30.00\nα 1e-01", "10.00\nα 2e-01"]
        (mark,) = display.ax_.lines
        assert (mark.get_xdata()[0], mark.get_ydata()[0]) == (1, 1)

    def test_from_estimator(self):
        X, y = load_breast_cancer(return_X_y=True)
        model = MarginPursuitClassifierCV(alphas=[1e-3, 1e-5], scales=[1.0, 0.3]).fit(X, y)
        display = SelectionDisplay.from_estimator(model)
        assert_allclose(np.min(display.errors), 1 - model.best_score_)
        row, column = np.unravel_index(np.argmin(display.errors), display.errors.shape)
        assert display.chosen == (display.scales[column], display.overconfidences[row])

    def test_bad_shapes(self):
        with pytest.raises(ValueError, match="must have shape"):
            SelectionDisplay([1.0], [0.0], [[0.1, 0.2]], [[0.1, 0.2]])
        with pytest.raises(ValueError, match="3 entries; got 1"):
            SelectionDisplay.from_predictions(list(self.PARAMS), [1.0])
