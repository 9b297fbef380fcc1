r"""Parameters of an estimator: allowed values, and what penalty and scale mean.

**Penalty.** "auto" is 0.3/n for n rows, in a unit that does not depend on the unit of X. It was
chosen on 16 data sets of 100, 400 and 4,000 rows, with two seeds that are used for nothing else
(`docs/choosing.md`): the error is 0.08 points below that of logistic regression in the mean. With
0.1/n and 1/n it is 0.03 below and 0.30 above, with penalties in proportion to 1/(n d) 0.5 or more
above. With few rows per column a multiple of 0.3/n is chosen by `_half_fits`.
`benchmarks/defaults.py` repeats the comparison on other seeds.

**Scale.** A rule maps the margins of a fit at scale s to a new scale. `ScaleIteration` finds a
scale that the rule returns unchanged, by a fit at each trial scale.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from math import exp, log
from numbers import Integral, Real
from reprlib import repr as short
from typing import Any, ClassVar, NamedTuple

import numpy as np

from marginpursuit._validation import FloatArray
from marginpursuit.classifiers._half_fits import HalfFitPolicy
from marginpursuit.classifiers._margins import Margins
from marginpursuit.location import confidence_scale, variance_scale
from marginpursuit.losses import TRUNCATION
from marginpursuit.solvers import Solution, Status


class Allowed(NamedTuple):
    """The values that a parameter may have."""

    words: str
    test: Callable[[Any], bool]

    def or_none(self) -> "Allowed":
        """Return the same values and None."""
        return Allowed(f"{self.words}, or None", lambda x: x is None or self.test(x))


def check_parameters(estimator: Any, allowed: Mapping[str, Allowed]) -> None:
    """Raise a ValueError for the first parameter whose value is not allowed."""
    for name, (words, test) in allowed.items():
        value = getattr(estimator, name)
        if not test(value):
            raise ValueError(f"{name} must be {words}; got {short(value)}")


def number(words: str, test: Callable[[float], bool], names: Iterable[str] = ()) -> Allowed:
    """Allow real numbers that pass the test, and names."""
    named = f", or one of {sorted(names)}" if names else ""

    def is_allowed(value: Any) -> bool:
        if isinstance(value, str):
            return value in names
        return isinstance(value, Real) and not isinstance(value, bool) and test(float(value))

    return Allowed(f"a number {words}{named}", is_allowed)


def numbers(words: str, low: float, high: float) -> Allowed:
    """Allow sequences of real numbers in [low, high]."""

    def is_allowed(values: Any) -> bool:
        # An iterator could be read once only: a second fit, or this check, would leave none.
        if isinstance(values, str | Mapping | Iterator) or not isinstance(values, Iterable):
            return False
        given = list(values)
        return bool(given) and all(
            isinstance(x, Real) and not isinstance(x, bool) and low <= float(x) <= high
            for x in given
        )

    return Allowed(f"a sequence of one or more numbers {words}", is_allowed)


def whole(least: int, *others: Any) -> Allowed:
    """Allow integers >= `least`, and other values."""
    also = "".join(f", or {other}" for other in others)

    def is_allowed(value: Any) -> bool:
        if isinstance(value, bool | None):
            return value in others
        return isinstance(value, Integral) and int(value) >= least

    return Allowed(f"a whole number >= {least}{also}", is_allowed)


def one_of(names: Iterable[str]) -> Allowed:
    """Allow names."""
    return Allowed(f"one of {list(names)}", lambda x: isinstance(x, str) and x in names)


FLAG = Allowed("True or False", lambda x: isinstance(x, bool | np.bool_))

LEVERAGE_BOUND = number("that is positive and finite", lambda x: 0 < x < np.inf).or_none()

#: The parameters of each kernel, as scikit-learn names them.
KERNELS = {
    "linear": (),
    "poly": ("gamma", "degree", "coef0"),
    "rbf": ("gamma",),
    "sigmoid": ("gamma", "coef0"),
    "precomputed": (),
}

#: The allowed values of the parameters of a kernel.
KERNEL_PARAMETERS = {
    "kernel": Allowed(
        f"one of {list(KERNELS)}, or a function of two matrices of rows",
        lambda x: callable(x) or (isinstance(x, str) and x in KERNELS),
    ),
    "gamma": number("that is positive and finite", lambda x: 0 < x < np.inf, ["auto", "scale"]),
    "degree": whole(1),
    "coef0": number("that is finite", lambda x: -np.inf < x < np.inf),
}

CLASS_WEIGHT = Allowed(
    "None, 'balanced' or a dict from class to weight",
    lambda x: x is None or isinstance(x, Mapping) or (isinstance(x, str) and x == "balanced"),
)

#: The allowed values of parameters that most classifiers have.
FIT_PARAMETERS = {
    "fit_intercept": FLAG,
    "max_iter": whole(1),
    "tol": number("in (0, 1)", lambda x: 0 < x < 1),
    "class_weight": CLASS_WEIGHT,
    "n_threads": whole(1, None),
    "verbose": whole(0, False, True),
}

#: The same as `CLASS_WEIGHT`, and with several labels a dict for each.
LABEL_CLASS_WEIGHT = Allowed(
    f"{CLASS_WEIGHT.words}, or with several labels a list of such dicts",
    lambda x: (
        CLASS_WEIGHT.test(x)
        or (isinstance(x, list | tuple) and all(isinstance(own, Mapping) for own in x))
    ),
)

#: The units of a penalty that a user may name.
ALPHA_UNITS = ("absolute", "standardised", "inflated", "common", "row")

RANDOM_STATE = Allowed(
    "None, a whole number from 0 to 2**32 - 1 or a random generator of NumPy",
    lambda x: (
        0 <= int(x) < 2**32
        if isinstance(x, Integral)
        else isinstance(x, np.random.RandomState | np.random.Generator | None)
    ),
)


#: The penalty "auto", times the number of rows (docs/choosing.md).
AUTO_PENALTY = 0.3

#: The penalty "negligible", in the unit of standardised columns.
NEGLIGIBLE_PENALTY = 1e-6


def penalty(alpha: float | str, n_samples: float) -> float:
    """Return the penalty α that a value of the parameter means for a number of rows.

    "negligible" is far below the curvature of data and far above rounding: it determines only what
    the data leave undetermined.
    """
    if alpha == "negligible":
        return NEGLIGIBLE_PENALTY
    return AUTO_PENALTY / n_samples if isinstance(alpha, str) else float(alpha)


def resolve_alpha_unit(
    alpha: float | str, alpha_unit: str, solver: str, *, is_sparse: bool, rows_per_column: float
) -> str:
    """Return the unit of the penalty: a name in the table of `solvers._problem`.

    The stochastic solver needs one penalty for all coefficients of the rows as given. For
    sparse rows the unit is the lower quartile of their squared norms. The mean, as in "common", is
    that of the longest texts: on the word counts of news20 (14,134 rows, one class against the
    rest) the test error is 4.2 % with it, the rate of the class. With the median the errors of the
    classes 0, 4, 9 and 14 are 1.18, 2.02, 1.33 and 1.04 %, with the quartile 1.04, 1.83, 1.06 and
    0.80 % (LinearSVC: 1.06, 1.81, 0.88 and 0.79 %; seeds from 101 on).
    """
    if alpha == "negligible":
        return "column"
    if alpha_unit != "auto":
        return alpha_unit
    if solver == "stochastic":
        return "common"
    return "row" if is_sparse else dense_unit(rows_per_column)


def dense_unit(rows_per_column: float) -> str:
    """Return the unit of the penalty of dense rows.

    With more rows per column the penalty "auto" is not chosen by held-out rows, and the fit hardly
    depends on its unit: "standardised" saves the pass for the kurtosis.
    """
    has_few_rows = rows_per_column < HalfFitPolicy().max_rows_per_column
    return "inflated" if has_few_rows else "standardised"


def check_kernel_options(kernel: Any, multi_class: str, alpha_unit: str) -> None:
    """Refuse one class against one without a kernel, and units of columns with one."""
    is_linear = isinstance(kernel, str) and kernel == "linear"
    if is_linear and multi_class == "ovo":
        raise ValueError(
            "multi_class='ovo' needs a kernel other than 'linear'. Set kernel, or wrap the "
            "classifier in sklearn.multiclass.OneVsOneClassifier."
        )
    if not is_linear and alpha_unit in ("standardised", "inflated"):
        raise ValueError(
            f"alpha_unit={alpha_unit!r} needs kernel='linear', whose columns it refers to; got "
            f"kernel={kernel!r}. Set alpha_unit to 'auto', 'row', 'common' or 'absolute'."
        )


def convergence_message(
    solution: Solution,
    tol: float,
    max_iter: int,
    *,
    shape: tuple[int, int],
    larger_penalty: str | None,
) -> str | None:
    """Return what to warn of after a solve, and what to do; None where it has converged.

    `larger_penalty` is what to set where the penalty is negligible.
    """
    gap = float(solution.gap.max())
    is_above, is_cut = gap > tol, solution.status is Status.MAX_ITER
    if solution.status is Status.CONVERGED or not (is_above or is_cut):
        return None
    n_rows, n_columns = shape
    advice = f"Set max_iter above {max_iter}."
    if solution.status is Status.ROUNDING:
        advice = f"Set tol above {gap:.0e}, or choose units in which the columns of X differ less."
    if larger_penalty is not None and 2 * n_columns >= n_rows:
        advice = (
            f"With {n_rows} rows, {n_columns} columns and a negligible penalty the minimum is "
            f"nearly undetermined: set {larger_penalty}."
        )
    comparison = f"above tol={tol:g}" if is_above else "an estimate that is not verified yet"
    return (
        f"{solution.status.value}: the estimated relative suboptimality is {gap:.1e}, "
        f"{comparison}. {advice}"
    )


#: The smallest scale of the rule "auto", and the first scale of every rule, in units of the margin
#: level γ. From √2 γ on the exact link increases strictly on (-γ, γ) (the paper's first case of the
#: conditional risk, γ/s ≤ √2/2), and ψ is truncated only at margins below -γ.
SMOOTH_LINK_SCALE = TRUNCATION


def first_scale(scale: float | str, margin: float) -> float:
    """Return the scale of the first fit: the number given, or the starting point of a rule."""
    return SMOOTH_LINK_SCALE * float(margin) if isinstance(scale, str) else float(scale)


class ScaleIteration:
    """Fixed-point iteration for the scale: Wegstein's method on its logarithm.

    Attributes
    ----------
    scale : float
        The scale of the last fit; after `advance`, that of the next.
    target : float
        The scale that the rule returned for the margins of the last fit.
    """

    #: Relative difference of the scale of a fit and that of the rule at which they are equal.
    rtol: ClassVar[float] = 0.02
    max_fits: ClassVar[int] = 10

    def __init__(self, parameter: float | str, scale: float) -> None:
        """Begin at a scale. If the parameter is a number, one fit is enough."""
        self._rule = SCALE_RULES[parameter] if isinstance(parameter, str) else None
        self._fits_left = self.max_fits
        self._last: tuple[float, float] | None = None  # scale and target of the fit before
        self.scale = self.target = scale

    @property
    def converged(self) -> bool:
        """Whether the rule returns the scale of the last fit, to within the tolerance."""
        return abs(self.target - self.scale) <= self.rtol * self.scale

    def is_finished(self, margins: Margins) -> bool:
        """Apply the rule to the margins of a fit; return whether no other fit follows."""
        if self._rule is None:
            return True
        self.target = self._rule(margins)
        self._fits_left -= 1
        return self.converged or self._fits_left == 0

    def advance(self) -> None:
        """Set the scale of the next fit.

        The secant through the last two points (log scale, log target) is intersected with the
        diagonal. Its slope is clipped to [-9, 1/2], so that the step is between 1/10 and 2 times
        that of the plain fixed-point iteration.
        """
        slope = 0.0
        if self._last is not None:
            slope = log(self.target / self._last[1]) / log(self.scale / self._last[0])
        step = log(self.target / self.scale) / (1.0 - min(max(slope, -9.0), 0.5))
        self._last = self.scale, self.target
        self.scale *= exp(step)


def _auto(margins: Margins) -> float:
    """Return max(√2 γ, 2 v/γ), where v = (interquartile range / 1.349)².

    v is the variance of a normal distribution with these quartiles; outliers do not change it.
    """

    def variance(group: Margins) -> FloatArray:
        low, high = group.quantiles((0.25, 0.75))
        return np.asarray(np.square((high - low) / 1.349))

    scale = variance_scale(_bounded_below(margins.average(variance), margins), margins.level)
    return max(SMOOTH_LINK_SCALE * margins.level, float(scale))


def _variance(margins: Margins) -> float:
    variance = margins.average(lambda group: group.variance())
    return float(variance_scale(_bounded_below(variance, margins), margins.level))


def _confidence(margins: Margins) -> float:
    variance = margins.average(lambda group: group.variance())
    return float(confidence_scale(_bounded_below(variance, margins), margins.total_weight))


def _quantile(margins: Margins) -> float:
    def square(group: Margins) -> FloatArray:
        return np.asarray(np.square(group.absolute().quantiles((group.absolute_level,))[0]))

    variance = _bounded_below(margins.average(square), margins)
    return float(confidence_scale(variance, margins.total_weight))


def _bounded_below(variance: float, margins: Margins) -> float:
    """Return the variance, at least (γ/100)²: equal margins leave the scale undetermined."""
    return max(variance, (1e-2 * margins.level) ** 2)


#: Scale rules by the name that the parameter `scale` takes.
SCALE_RULES: dict[str, Callable[[Margins], float]] = {
    "auto": _auto,
    "confidence": _confidence,
    "quantile": _quantile,
    "variance": _variance,
}
