from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from marginpursuit.calibration import psi_transform
from marginpursuit.experiments import (
    EXPERIMENTS,
    QUICK,
    Results,
    overview,
    reproduce,
)
from marginpursuit.experiments.compare import methods
from marginpursuit.experiments.runs import Run
from marginpursuit.losses import rho

pytest.importorskip("matplotlib", reason="figures need the extra plot")


def figure(name):
    """Return the figure of an experiment that needs no fits."""
    return EXPERIMENTS[name].draw(QUICK, Results({}))[name]


def test_figure_1_shows_the_loss():
    panels = figure("figure1").axes
    assert len(panels) == 3
    u, value = panels[0].lines[0].get_data()
    np.testing.assert_array_equal(value, rho(u))


def test_figure_2_shows_the_five_levels():
    risk, transform, inverse, scaling = figure("figure2").axes
    assert len(risk.lines) == len(transform.lines) == len(EXPERIMENTS["figure2"].margins) == 5
    theta, value = transform.lines[0].get_data()
    np.testing.assert_array_equal(value, psi_transform(theta, np.sqrt(2.0) / 2))
    assert len(inverse.lines) == 4
    # E26: the paper's plot ends at s = 15; the curves keep decreasing beyond it.
    for line in scaling.lines[:-1]:
        scale, bound = line.get_data()
        assert scale[-1] == pytest.approx(1e4)
        assert bound[-1] < 0.02


def test_every_method_is_drawn_and_the_robust_ones_are_bounded():
    panels = [axes for axes in figure("methods").axes if axes.lines]
    titles = [axes.get_title() for axes in panels]
    assert titles == list(EXPERIMENTS["methods"].objectives)
    curve = {title: axes.lines[0].get_data()[1] for title, axes in zip(titles, panels, strict=True)}
    margins = EXPERIMENTS["methods"].margins
    hinge = np.maximum(1 - margins, 0)
    np.testing.assert_allclose(curve["Pegasos"], hinge, atol=1e-9)
    # From a margin of -3 to -4 the hinge loss increases by 1; a robust estimate does not.
    far = [int(np.searchsorted(margins, m)) for m in (-4.0, -3.0)]
    rise = {title: values[far[0]] - values[far[1]] for title, values in curve.items()}
    assert rise["Pegasos"] == pytest.approx(1.0)
    assert rise["Catoni risk"] == pytest.approx(0.0, abs=1e-6)
    assert rise["median of means"] < 0.3


def test_overview_gathers_figures_claims_and_versions(tmp_path):
    found = reproduce(["figure1", "cubics", "methods"], quick=True, out=tmp_path)
    run = overview.gather(found)
    assert [figure.title for figure in run.figures] == ["figure1", "cubics", "methods"]
    assert run.figures[0].svg == (tmp_path / "figure1.svg").read_text(encoding="utf-8")
    assert run.figures[0].caption == EXPERIMENTS["figure1"].title
    assert run.versions["code"] == found.code
    claims = run.listings[0]
    assert [row[3] for row in claims.rows] == [each.verdict for each in found.verdicts]
    assert Run.from_json(run.to_json()) == run
    missing = replace(found, not_run={"sido": "it is nowhere"})
    assert "Not run: sido. it is nowhere" in overview.gather(missing).listings[0].caption


def test_overview_compares_on_bundled_data(monkeypatch):
    few = methods(["RidgeClassifier", "LogisticRegression"])
    monkeypatch.setattr(overview, "methods", lambda: few)
    monkeypatch.setattr(overview, "compare", partial(overview.compare, chosen=few))
    told = []
    results = overview.compare_bundled(quick=True, progress=told.append)
    assert [result.name for result in results] == ["breast_cancer", "digits"]
    assert all(result.methods[0].failure is None for result in results)
    assert len(told) == overview.count_fits(quick=True)


def test_every_figure_of_the_paper_has_an_experiment():
    assert {f"figure{number}" for number in range(1, 6)} <= set(overview.NAMES)
    assert set(overview.NAMES.values()) == set(EXPERIMENTS)
