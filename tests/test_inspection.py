import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.exceptions import DataConversionWarning
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from marginpursuit import MarginPursuitClassifier, MarginPursuitClassifierCV
from marginpursuit.calibration import probability
from marginpursuit.inspection import (
    CalibrationLinkDisplay,
    ConvergenceDisplay,
    MarginDistributionDisplay,
    ScalePathDisplay,
    SelectionDisplay,
    margins_of,
    row_influence,
)
from marginpursuit.location import catoni_location
from marginpursuit.losses import MarginLoss

pytest.importorskip("matplotlib", reason="plots need the extra plot")


def test_margins_of_two_classes():
    X, y = load_breast_cancer(return_X_y=True)
    model = MarginPursuitClassifier(leverage_bound=None, margin=2.0).fit(X, y)
    display = MarginDistributionDisplay.from_estimator(model, X, y)
    expected = np.where(y == 1, 1, -1) * model.decision_function(X)
    np.testing.assert_array_equal(display.margins, expected)
    assert display.level == 2.0
    assert display.location == catoni_location(expected, model.scale_)
    np.testing.assert_allclose(display.location, model.margin_location_[0], rtol=1e-12)


def test_margins_of_several_labels():
    scores = np.array([[1.0, -2.0], [3.0, 4.0]])
    assert_allclose(margins_of([[1, 0], [0, 1]], scores, [0, 1]), [[1.0, 2.0], [-3.0, 4.0]])
    with pytest.raises(ValueError, match="an indicator matrix has values of 0 and 1"):
        margins_of([[1, 2], [0, 1]], scores, [0, 1])


def test_margins_of_several_classes():
    X, y = load_iris(return_X_y=True)
    names = np.array(["a", "b", "c"])[y]
    model = MarginPursuitClassifier().fit(X, names)
    display = MarginDistributionDisplay.from_estimator(model, X, names)
    expected = np.where(names[:, None] == model.classes_, 1, -1) * model.decision_function(X)
    np.testing.assert_array_equal(display.margins, expected.ravel())


def test_plot_shows_density_level_and_location():
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


def test_heavy_tails_have_at_most_200_bins():
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
        ([0, 1], [0.1, 0.2, 0.3], r"scores has shape \(3,\); expected \(2,\)"),
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
        rows, columns = np.nonzero(display.errors == np.min(display.errors))
        best = zip(display.scales[columns], display.overconfidences[rows], strict=True)
        assert display.chosen in list(best)

    def test_bad_shapes(self):
        with pytest.raises(ValueError, match=r"they must have shape \(1, 1\)"):
            SelectionDisplay([1.0], [0.0], [[0.1, 0.2]], [[0.1, 0.2]])
        with pytest.raises(ValueError, match="3 entries, one per candidate; got 1"):
            SelectionDisplay.from_predictions(list(self.PARAMS), [1.0])


def test_calibration_link_against_frequencies():
    """Labels drawn from the link agree with it in every bin."""
    rng = np.random.default_rng(0)
    scores = rng.uniform(-1.2, 1.2, size=40_000)
    y = rng.uniform(size=scores.size) < probability(scores, 1.0, 2.0)
    display = CalibrationLinkDisplay.from_predictions(
        y, scores, classes=[False, True], scale=2.0, n_bins=20
    )
    assert len(display.scores) == 20
    np.testing.assert_allclose(display.frequencies, display.probabilities, atol=0.04)
    other = CalibrationLinkDisplay.from_predictions(
        ~y, scores, classes=[False, True], scale=2.0, n_bins=20
    )
    np.testing.assert_allclose(other.frequencies, 1 - display.frequencies)
    line = display.line_.get_data()
    np.testing.assert_array_equal(line[1], probability(line[0], 1.0, 2.0))
    np.testing.assert_array_equal(display.points_.get_ydata(), display.frequencies)


def test_calibration_link_of_an_estimator():
    X, y = load_iris(return_X_y=True)
    model = MarginPursuitClassifier(margin=2.0).fit(X, y)
    display = CalibrationLinkDisplay.from_estimator(model, X, y, n_bins=10)
    assert (display.level, display.scale) == (2.0, model.scale_)
    # Each sample belongs to one of three classes, as do a third of all scores.
    assert np.mean(display.frequencies) == pytest.approx(1 / 3)
    assert np.all(np.diff(display.scores) > 0)
    assert display.ax_.get_legend().get_texts()[0].get_text() == "MarginPursuitClassifier"


def test_a_score_of_zero_counts_for_its_class():
    display = CalibrationLinkDisplay.from_predictions(
        [0, 0, 0, 1], [0.0, 0.0, 0.0, 0.0], classes=[0, 1], n_bins=1
    )
    assert display.frequencies.tolist() == [0.25]


@pytest.mark.filterwarnings("ignore:.*took all steps")
def test_convergence_reaches_the_objective():
    X, y = load_breast_cancer(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    model = MarginPursuitClassifier.as_published(solver="steepest", scale="variance")
    display = ConvergenceDisplay.from_estimator(model, X, y, steps=[1, 10, 100, 1000])
    assert np.all(np.diff(display.losses) < 0)
    scale = (
        MarginPursuitClassifier.as_published(solver="steepest", scale="variance").fit(X, y).scale_
    )
    last = MarginPursuitClassifier.as_published(solver="steepest", scale=scale, max_iter=1000).fit(
        X, y
    )
    assert display.losses[-1] == pytest.approx(last.objective_, rel=1e-9)
    np.testing.assert_array_equal(display.line_.get_xdata(), [1, 10, 100, 1000])
    np.testing.assert_array_equal(display.line_.get_ydata(), display.losses)


def test_convergence_of_given_scores_and_of_other_estimators():
    y, scores = [0, 1, 1], np.array([[0.0, 0.0, 0.0], [-1.0, 0.5, 3.0]])
    display = ConvergenceDisplay.from_predictions(
        y, scores, classes=[0, 1], steps=[1, 5], level=1.0, scale=0.5, overconfidence=0.25
    )
    loss = MarginLoss(1.0, 0.5, 0.25)
    expected = [loss.value(0.0), np.mean(loss.value(np.array([1.0, 0.5, 3.0])))]
    np.testing.assert_allclose(display.losses, expected)
    X, species = load_iris(return_X_y=True)
    assert len(ConvergenceDisplay.from_estimator(LinearSVC(), X, species, steps=[1, 9]).losses) == 2


def test_scale_path():
    X, y = load_breast_cancer(return_X_y=True)
    model = MarginPursuitClassifier()
    display = ScalePathDisplay.from_estimator(model, X, y, scales=[0.2, 2.0, 20.0])
    for number, scale in enumerate([0.2, 2.0, 20.0]):
        fitted = MarginPursuitClassifier(scale=scale).fit(X, y)
        margins = margins_of(y, fitted.decision_function(X), fitted.classes_)
        np.testing.assert_allclose(display.locations[number], catoni_location(margins, scale))
        np.testing.assert_allclose(
            display.quantiles[:, number], np.quantile(margins, [0.05, 0.25, 0.5, 0.75, 0.95])
        )
        assert display.errors[number] == pytest.approx(1 - fitted.score(X, y))
    assert display.chosen == model.fit(X, y).scale_
    labels = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert labels == ["5 % to 95 %", "25 % to 75 %", "median", "location", "chosen scale"]


def test_scale_path_of_given_scores_and_default_scales():
    display = ScalePathDisplay.from_predictions(
        [0, 1], [[-1.0, 1.0], [-2.0, -2.0]], classes=[0, 1], scales=[1.0, 2.0]
    )
    np.testing.assert_allclose(display.errors, [0.0, 0.5])
    assert display.chosen is None
    X, y = load_iris(return_X_y=True)
    display = ScalePathDisplay.from_estimator(MarginPursuitClassifier(margin=2.0), X, y)
    assert display.scales[[0, -1]].tolist() == pytest.approx([0.2, 200.0])


@pytest.mark.parametrize(
    ("scales", "message"),
    [
        ([1.0], r"has shape \(1,\); expected \(2,\)"),
        ([2.0, 1.0], r"must be positive and increase; got \[2.0, 1.0\]"),
        ([-1.0, 1.0], r"must be positive and increase; got \[-1.0, 1.0\]"),
    ],
)
def test_stages_must_increase_and_match(scales, message):
    with pytest.raises(ValueError, match=f"scales {message}"):
        ScalePathDisplay.from_predictions(
            [0, 1], [[1.0, 2.0], [1.0, 2.0]], classes=[0, 1], scales=scales
        )
    with pytest.raises(ValueError, match=f"steps {message}"):
        ConvergenceDisplay.from_predictions(
            [0, 1], [[1.0, 2.0], [1.0, 2.0]], classes=[0, 1], steps=scales
        )


def draw_calibration(ax=None):
    return CalibrationLinkDisplay.from_predictions([0, 1], [-1.0, 1.0], classes=[0, 1], ax=ax)


def draw_margins(ax=None):
    return MarginDistributionDisplay.from_predictions([0, 1], [-1.0, 1.0], classes=[0, 1], ax=ax)


def draw_convergence(ax=None):
    scores = [[-1.0, 1.0], [-2.0, 2.0]]
    return ConvergenceDisplay.from_predictions([0, 1], scores, classes=[0, 1], steps=[1, 2], ax=ax)


def draw_scale_path(ax=None):
    scores = [[-1.0, 1.0], [-2.0, 2.0]]
    return ScalePathDisplay.from_predictions([0, 1], scores, classes=[0, 1], scales=[1, 2], ax=ax)


def draw_selection(ax=None):
    return SelectionDisplay.from_predictions(list(TestSelectionDisplay.PARAMS), [1.0] * 3, ax=ax)


@pytest.mark.parametrize(
    "draw", [draw_calibration, draw_margins, draw_convergence, draw_scale_path, draw_selection]
)
def test_every_display_draws_on_given_and_on_new_axes(draw):
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    given, new = draw(axes), draw()
    assert given.ax_ is axes
    assert given.figure_ is axes.figure
    assert new.ax_ is not axes
    assert new.plot() is new
    assert new.ax_.has_data()


def test_estimators_without_what_a_display_draws_are_named():
    X, y = load_iris(return_X_y=True)
    words = "estimator is of type LinearSVC, which has no {}; expected a .*MarginPursuitClassifier"
    other = LinearSVC().fit(X, y)
    with pytest.raises(TypeError, match=words.format("margin")):
        CalibrationLinkDisplay.from_estimator(other, X, y)
    with pytest.raises(TypeError, match=words.format("margin")):
        ScalePathDisplay.from_estimator(other, X, y)
    with pytest.raises(TypeError, match=words.format("cv_results_")):
        SelectionDisplay.from_estimator(other)


def test_a_column_of_labels_is_taken_with_a_warning():
    X, y = load_breast_cancer(return_X_y=True)
    model = MarginPursuitClassifier().fit(X, y)
    expected = row_influence(model, X, y)
    with pytest.warns(DataConversionWarning):
        found = row_influence(model, X, y[:, np.newaxis])
    assert_allclose(found.influence, expected.influence)
    with pytest.warns(DataConversionWarning):
        display = MarginDistributionDisplay.from_estimator(model, X, y[:, np.newaxis])
    assert display.margins.shape == y.shape


def test_influences_need_the_classes_of_the_model_one_a_row():
    X, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match=r"classes that the model does not have: \[3\]"):
        row_influence(MarginPursuitClassifier().fit(X, y), X, y + 1)
    labels = np.column_stack([y == 0, y == 2]).astype(int)
    assert row_influence(MarginPursuitClassifier().fit(X, labels), X, labels).influence is None
