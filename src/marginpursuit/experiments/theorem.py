"""The paper's theorem in numbers: the sample size from which its bound says something.

The bound on the excess risk of Algorithm 1 is vacuous until the statistical error is below Ψ(1).
Three sets of constants are used for each data set, with standardised columns and enough steps that
the optimisation error is negligible:

* *estimated*: those of `marginpursuit.bounds.estimate_constants`;
* *best case*: the most favourable ones for its E‖x‖² = v and dimension d, κ = λ = v/d and c = 1/2
  with s = γ, which no data set reaches unless its inputs are isotropic;
* *best case, printed*: the same with E‖xxᵀ‖ = v in place of λ = ‖E xxᵀ‖, as in the paper (E35).
"""

from collections.abc import Callable
from dataclasses import fields, replace

import numpy as np

from marginpursuit.bounds import AlgorithmRiskBound, DataConstants, algorithm_risk_bound
from marginpursuit.experiments._fits import CONSTANTS, Fit
from marginpursuit.experiments._results import Experiment, Results, Setting, Table, Verdict

__all__ = ["TheoremInNumbers", "first_informative_n"]


class TheoremInNumbers(Experiment):
    """The first sample size at which the bound is not vacuous, and its dominant term."""

    name = "theorem"
    title = "The theorem in numbers"

    def plan(self, setting: Setting) -> list[Fit]:
        """Return an estimate of the constants for each data set and trial."""
        return [
            Fit(data, "standard", trial, CONSTANTS)
            for data in setting.tabled
            for trial in range(setting.trials)
        ]

    def verdicts(self, setting: Setting, results: Results) -> list[Verdict]:
        """Check whether the bound is informative at the paper's sample sizes, in the best case."""
        findings = {}
        for data in setting.datasets:
            constants = _constants(results, data)
            first = [first_informative_n(best_case(each)) for each in constants]
            n = constants[0].n
            text = f"n = {n:.0f}; informative from {_power(np.exp(np.mean(np.log(first))))} on"
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
            found = _constants(results, data)
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
        caption = f"Geometric means over {setting.trials} trials; δ = 0.05."
        return [Table("First n at which the theorem is not vacuous", caption, header, tuple(rows))]


def _constants(results: Results, data: str) -> list[DataConstants]:
    """Return the constants of each trial."""
    fit = Fit(data, "standard", 0, CONSTANTS)
    names = [field.name for field in fields(DataConstants) if field.type in (int, float)]
    columns = {name: results.trials(fit, name).tolist() for name in names}
    none = np.empty(0)
    return [
        DataConstants(
            **dict(zip(names, row, strict=True)), coef=none, margins=none, norms=none, failures=()
        )
        for row in zip(*columns.values(), strict=True)
    ]


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
    """Return the bound after enough steps that the optimisation error is negligible."""
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
