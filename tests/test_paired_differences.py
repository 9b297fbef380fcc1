"""Paired differences of cross-validated scores: definition, symmetries, verdicts."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from marginpursuit.experiments.method_results import Fold, MethodResult, SetResult
from marginpursuit.experiments.paired_differences import corrected_mean, recommend

VALUES = st.lists(st.floats(-1, 1).map(lambda value: round(value, 6)), min_size=2, max_size=30)
RATIOS = st.floats(0.01, 1.0)


@given(VALUES, RATIOS, st.floats(0.5, 0.999))
def test_interval_is_that_of_its_definition(values, ratio, confidence):
    assume(np.ptp(values) > 1e-5)
    found = corrected_mean(values, ratio, confidence)
    k = len(values)
    error = np.sqrt((1 / k + ratio) * np.var(values, ddof=1))
    expected = stats.t(k - 1, loc=np.mean(values), scale=error).interval(confidence)
    np.testing.assert_allclose(found.interval, expected, rtol=1e-9, atol=1e-12)
    # The interval at the level 1 - p ends at zero.
    ends = corrected_mean(values, ratio, 1 - found.p_value).interval
    if 1e-6 < found.p_value < 1 - 1e-6:
        assert min(np.abs(ends)) < 1e-6 * max(np.abs(ends))


def test_without_overlap_it_is_the_paired_t_test():
    a, b = np.random.default_rng(0).normal(size=(2, 12))
    expected = stats.ttest_rel(a, b)
    found = corrected_mean(list(a - b), 0.0)
    assert found.p_value == pytest.approx(expected.pvalue)
    interval = expected.confidence_interval(0.95)
    np.testing.assert_allclose(found.interval, [interval.low, interval.high])


@given(VALUES, RATIOS)
def test_exchanged_methods_negate_the_difference(values, ratio):
    found = corrected_mean(values, ratio)
    other = corrected_mean([-value for value in values], ratio)
    assert other.mean == -found.mean
    assert other.half_width == pytest.approx(found.half_width, rel=1e-12)
    assert other.p_value == pytest.approx(found.p_value, rel=1e-9)
    assert other.sign == -found.sign


@given(VALUES, RATIOS, st.floats(0.01, 100))
def test_units_of_the_score_scale_the_interval(values, ratio, factor):
    assume(np.ptp(values) > 1e-5)
    found = corrected_mean(values, ratio)
    scaled = corrected_mean([factor * value for value in values], ratio)
    assert scaled.mean == pytest.approx(factor * found.mean, rel=1e-9, abs=1e-12)
    assert scaled.half_width == pytest.approx(factor * found.half_width, rel=1e-9)
    assert scaled.p_value == pytest.approx(found.p_value, rel=1e-6)


@given(VALUES, RATIOS, st.permutations(range(30)))
def test_order_of_folds_is_irrelevant(values, ratio, order):
    mixed = [values[k] for k in order if k < len(values)]
    found, again = corrected_mean(values, ratio), corrected_mean(mixed, ratio)
    assert again.mean == found.mean
    assert again.half_width == pytest.approx(found.half_width, rel=1e-12)


def test_equal_differences_have_an_interval_of_width_zero():
    none = corrected_mean([0.0] * 5, 0.25)
    assert (none.half_width, none.p_value, none.sign) == (0.0, 1.0, 0)
    one = corrected_mean([0.1] * 5, 0.25)
    assert (one.half_width, one.p_value, one.sign) == (0.0, 0.0, 1)


def test_a_single_fold_is_rejected():
    with pytest.raises(ValueError, match="at least 2 elements, one per fold; got 1"):
        corrected_mean([0.1], 0.25)


def test_more_rejections_without_the_correction():
    """Scores of two equal methods over overlapping training rows: 5 % false verdicts at most.

    The differences of the folds share a component, as overlapping training rows cause: their
    correlation is n_test / (n_train + n_test), the value from which the correction is derived.
    """
    generator = np.random.default_rng(0)
    k, ratio, trials = 10, 1 / 9, 2000
    correlation = ratio / (1 + ratio)
    shared = np.sqrt(correlation) * generator.normal(size=(trials, 1))
    values = shared + np.sqrt(1 - correlation) * generator.normal(size=(trials, k))
    corrected = np.mean([corrected_mean(list(row), ratio).sign != 0 for row in values])
    plain = np.mean([corrected_mean(list(row), 0.0).sign != 0 for row in values])
    assert 0.03 < corrected < 0.07
    assert plain > 0.1


def made(baseline="b", scoring="accuracy", **errors):
    """A result with the given errors of each fold; "none" has no log-loss."""
    methods = tuple(
        MethodResult(
            name,
            {},
            {},
            tuple(Fold(e, None if name == "none" else 10 * e, 1.0, 20, {}) for e in folds),
            None,
            None,
        )
        for name, folds in errors.items()
    )
    failed = MethodResult("failed", {}, {}, (), None, None, "it broke")
    return SetResult("d", "", 100, 2, ("0", "1"), True, "", (*methods, failed), scoring, baseline)


BASE = [0.10, 0.12, 0.11, 0.13, 0.14]


def shifted(change, noise=0.001):
    return [e + change + noise * (-1) ** k for k, e in enumerate(BASE)]


def test_verdicts_in_words():
    found = recommend(
        made(b=BASE, good=shifted(-0.05), bad=shifted(0.05), same=shifted(0.001, 0.02))
    )
    assert [method.name for method in found.ranking] == ["good", "b", "same", "bad"]
    verdicts = {name: difference.verdict for name, difference in found.differences.items()}
    assert verdicts == {"good": "better", "bad": "worse", "same": "no difference"}
    assert found.headline == "Take good: error 7.02 %."
    known = replace(made(b=BASE), majority_error=0.125)
    told = "Take b: error 12.00 % (always the most frequent class: 12.50 %)."
    assert recommend(known).headline == told
    assert "always" not in recommend(replace(known, scoring="balanced_accuracy")).headline
    half = 100 * corrected_mean(list(np.subtract(shifted(-0.05), BASE)), 0.25).half_width
    sentence = f"good instead of b: -5.0 ± {half:.1f} points of error: better"
    assert found.differences["good"].sentence == sentence
    assert found.reason.startswith(sentence)
    assert "corrected for the choice among 3 methods" in found.reason


def test_a_difference_that_may_be_chance_is_not_called_certain():
    one = recommend(made(b=BASE, good=shifted(-0.025, 0.01)))
    assert one.differences["good"].verdict == "better"
    p_value = corrected_mean(list(np.subtract(shifted(-0.025, 0.01), BASE)), 0.25).p_value
    assert 0.02 < p_value < 0.05
    assert one.reason.endswith(f"better. p = {p_value:.1g}.")
    many = recommend(made(b=BASE, good=shifted(-0.025, 0.01), **{f"m{k}": BASE for k in range(9)}))
    uncertain = f"Not certain: p = {10 * p_value:.1g} after correction for the choice among 10"
    assert uncertain in many.reason
    close = recommend(made(b=BASE, good=shifted(-0.01, 0.02)))
    assert close.reason.endswith("no difference. b may be as good.")


def test_the_baseline_may_be_the_best():
    found = recommend(made(b=BASE, bad=shifted(0.05), worst=shifted(0.2)))
    assert found.headline == "Take b: error 12.00 %."
    assert found.reason.startswith("bad instead of b: +5.0 ±")
    assert found.reason.endswith("points of error: worse.")
    close = recommend(made(b=BASE, other=shifted(0.01, 0.02)))
    assert close.reason.endswith("no difference. other may be as good.")


def test_methods_that_lack_the_score_come_last():
    found = recommend(made(scoring="neg_log_loss", none=shifted(-0.1), b=BASE, good=shifted(-0.05)))
    assert [method.name for method in found.ranking] == ["good", "b", "none"]
    assert set(found.differences) == {"good"}
    assert "-0.498 ±" in found.reason
    assert "log-loss: better" in found.reason
    assert found.interval(found.ranking[-1]) == ""
    lacking = recommend(made("none", "neg_log_loss", none=BASE))
    assert lacking.method is None
    assert (lacking.headline, lacking.reason) == ("No method has a result for log-loss.", "")


def test_a_baseline_that_failed_leaves_the_ranking():
    found = recommend(made("failed", b=BASE, good=shifted(-0.05)))
    assert found.method.name == "good"
    assert found.differences == {}
    assert found.reason == ""


def test_intervals_of_scores():
    result = made(b=BASE)
    low, high = result.methods[0].error_interval
    found = recommend(result)
    assert found.interval(result.methods[0]) == f"{100 * low:.2f} to {100 * high:.2f} %"
    result = made(scoring="neg_log_loss", b=BASE)
    low, high = corrected_mean([10 * e for e in BASE], 0.25).interval
    assert recommend(result).interval(result.methods[0]) == f"{low:.3f} to {high:.3f}"
