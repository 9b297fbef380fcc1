"""The paper's theorem in numbers: the sample size from which its bound says something.

The bound on the excess risk of Algorithm 1 is vacuous until the statistical error is below Ψ(1).
Three sets of constants are used for each data set, with standardised columns and so many steps that
the optimisation error is negligible:

* *estimated*: those of `marginpursuit.bounds.estimate_constants`;
* *best case*: the most favourable ones for its E‖x‖² = v and dimension d, κ = λ = v/d and c = 1/2
  with s = γ, which no data set reaches unless its inputs are isotropic;
* *best case, printed*: the same with E‖xxᵀ‖ = v in place of λ = ‖E xxᵀ‖, as in the paper (E35).
"""

import warnings
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from marginpursuit.bounds import (
    AlgorithmRiskBound,
    DataConstants,
    algorithm_risk_bound,
    estimate_constants,
)
from marginpursuit.experiments._fits import Fit, draw_sample
from marginpursuit.experiments._results import Experiment, Results, Setting, Table, Verdict
from marginpursuit.experiments.margin_location import MarginLocation

__all__ = ["TheoremInNumbers", "first_informative_n"]


class TheoremInNumbers(Experiment):
    """The first sample size at which the bound is not vacuous, and its dominant term.

    Attributes
    ----------
    n_samples : int
        The number of trials whose constants are estimated; an estimate takes up to half a minute.
    """

    name = "theorem"
    title = "The theorem in numbers"
    n_samples = 5

    def plan(self, setting: Setting) -> list[Fit]:
        """Return a fit for each data set, shared with the experiment on the location."""
        return [MarginLocation.fit(data, 1.0) for data in setting.tabled]

    def verdicts(self, setting: Setting, results: Results) -> list[Verdict]:
        """Check whether the bound is informative at the paper's sample sizes, in the best case."""
        findings = {}
        for data in setting.datasets:
            n = len(draw_sample(data, "standard", 0).y)
            first = [first_informative_n(best_case(each)) for each in self._constants(data)]
            text = f"n = {n}; informative from {_power(np.exp(np.mean(np.log(first))))} on"
            findings[data] = bool(np.all(np.array(first) <= n)), text
        return [
            Verdict.of(
                "The risk bound of the theorem is informative at the paper's sample sizes",
                "standardised columns, exact minimiser, the best case of the constants, δ = 0.05",
                "not vacuous for the n of the experiments",
                findings,
            )
        ]

    def tables(self, setting: Setting, results: Results) -> list[Table]:
        """Return the constants, the first informative n, and the parts of the statistical error."""
        rows = []
        for data in setting.tabled:
            found = self._constants(data)
            best = [best_case(each) for each in found]
            printed = [replace(each, spectral_moment=each.second_moment) for each in best]
            for name, constants in (
                ("estimated", found),
                ("best case", best),
                ("best case, printed", printed),
            ):
                rows.append((setting.label(data), name, *_cells(constants)))
        header = (
            *("data", "constants", "d", "v", "λ", "κ", "c", "s", "first n"),
            *("ε* in the error", "cover in ε*²"),
        )
        caption = f"Geometric means over {self.n_samples} trials; δ = 0.05."
        return [Table("First n at which the theorem is not vacuous", caption, header, tuple(rows))]

    def _constants(self, data: str) -> list[DataConstants]:
        if data not in self._known:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # assumptions that fail; see the docs
                samples = [draw_sample(data, "standard", k) for k in range(self.n_samples)]
                self._known[data] = [estimate_constants(each.X, each.y) for each in samples]
        return self._known[data]

    def __init__(self) -> None:
        self._known: dict[str, list[DataConstants]] = {}


def best_case(constants: DataConstants) -> DataConstants:
    """Return the most favourable constants for the second moment and the dimension."""
    isotropic = constants.second_moment / constants.dimension
    return replace(
        constants,
        scale=constants.margin,
        strong_convexity=isotropic,
        spectral_moment=isotropic,
        sub_gaussian=0.5,
    )


def first_informative_n(constants: DataConstants) -> float:
    """Return the smallest n, to 1 %, at which the bound after many steps is not vacuous."""
    return _smallest(lambda n: not _bound(constants, n).vacuous)


def _bound(constants: DataConstants, n: float) -> AlgorithmRiskBound:
    """Return the bound after so many steps that the optimisation error is negligible."""
    steps = int(100 * (1 + constants.second_moment / constants.strong_convexity))
    return algorithm_risk_bound(n=int(n), iterations=steps, constants=constants)


def _smallest(holds: Callable[[float], bool], largest: float = 1e60) -> float:
    """Return the smallest n, to 1 %, from which a monotone condition holds; inf beyond 10⁶⁰."""
    low, high = 1.0, largest
    if not holds(high):
        return np.inf
    while high > 1.01 * low:
        middle = float(np.sqrt(low * high))
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _cells(constants: list[DataConstants]) -> list[str]:
    """Return geometric means of the constants, of the first n, and of the parts of the error."""
    columns = []
    for each in constants:
        n = first_informative_n(each)
        bound = _bound(each, n)
        v, spectral, s = each.second_moment, each.spectral_moment, each.scale
        error = 1.05 * v + bound.epsilon_star
        trace_only = 2 * each.sub_gaussian * s * s * (8 / 9) * v
        columns.append(
            (
                *(each.dimension, v, spectral, each.strong_convexity, each.sub_gaussian, s, n),
                *(bound.epsilon_star / error, 1 - trace_only / bound.epsilon_star**2),
            )
        )
    means = np.exp(np.mean(np.log(columns), axis=0))
    return [f"{means[0]:.0f}", *(f"{x:.2g}" for x in means[1:6]), _power(means[6])] + [
        f"{100 * x:.1f} %" for x in means[7:]
    ]


def _power(n: float) -> str:
    return f"{n:.0e}"
