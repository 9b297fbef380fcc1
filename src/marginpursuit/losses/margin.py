"""The loss of margin pursuit: a function ρ of the residual, with a weight for each side."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from marginpursuit._validation import Elementwise, FloatArray, between, like, positive, real, scalar
from marginpursuit.losses.protocol import KernelParameters
from marginpursuit.losses.rhos import RHOS, Rho, array_functions, at_most

#: A function of margins and weights that returns weighted losses and weighted derivatives.
Evaluation: TypeAlias = Callable[[Any, Any], tuple[Any, Any]]


@dataclass(frozen=True, slots=True)
class MarginLoss:
    r"""The family of losses of a margin m around a level γ.

    With residual r = γ - m, scale s and overconfidence weight τ,

    .. math::

        \varphi(m) = s^2 \rho(r/s) \;\; (m \le \gamma), \qquad
        \varphi(m) = \tau\, s^2 \rho(r/s) \;\; (m > \gamma).

    τ = 1 is the loss of the paper, which penalises a margin above the level as much as one below;
    τ = 0 is a smooth, one-sided loss. All are convex and C¹, with a derivative bounded by sB, where
    B is the bound of ρ', a curvature in [0, 1], and classification-calibrated.

    Parameters
    ----------
    margin : float, default=1.0
        The level γ > 0, at which the loss is zero.
    scale : float, default=1.0
        The scale s > 0: residuals well beyond s are treated as outliers.
    overconfidence : float, default=1.0
        The weight τ in [0, 1] of margins above the level.
    rho : {"catoni", "pseudo_huber", "log_cosh", "huber", "square"} or Rho, default="catoni"
        The function ρ, by its name in :data:`RHOS` or as a value. The square has an unbounded
        derivative and is not robust.

    Examples
    --------
    >>> from marginpursuit.losses import MarginLoss
    >>> MarginLoss(margin=1.0, scale=2.0).value([-1.0, 1.0, 3.0])
    array([1.83333333, 0.        , 1.83333333])
    >>> MarginLoss(margin=1.0, scale=2.0, overconfidence=0.0).value([-1.0, 1.0, 3.0])
    array([1.83333333, 0.        , 0.        ])
    >>> MarginLoss(rho="huber").value([-1.0, 1.0, 3.0])
    array([1.5, 0. , 1.5])
    """

    margin: float = 1.0
    scale: float = 1.0
    overconfidence: float = 1.0
    rho: str | Rho = "catoni"
    #: The function ρ.
    rho_function: Rho = field(init=False, repr=False, compare=False)
    #: Code of ρ, level, scale and overconfidence; None if the kernels do not know ρ.
    kernel_parameters: KernelParameters | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        checked = {
            "margin": positive("margin", self.margin),
            "scale": positive("scale", self.scale),
            "overconfidence": between("overconfidence", self.overconfidence, 0.0, 1.0),
        }
        for name, number in checked.items():
            object.__setattr__(self, name, scalar(name, number))
        if not isinstance(self.rho, Rho) and self.rho not in RHOS:
            raise ValueError(f"rho must be one of {list(RHOS)} or a Rho; got {self.rho!r}")
        rho = self.rho if isinstance(self.rho, Rho) else RHOS[self.rho]
        parameters = None
        if rho.kernel_code is not None:
            parameters = rho.kernel_code, self.margin, self.scale, self.overconfidence
        object.__setattr__(self, "rho_function", rho)
        object.__setattr__(self, "kernel_parameters", parameters)

    @property
    def curvature_bound(self) -> float:
        """The upper bound 1 of φ''."""
        return 1.0

    @property
    def side_weights(self) -> tuple[float, ...]:
        """The weight 1 of margins below the level and, if it is positive, τ of those above."""
        return (1.0, self.overconfidence) if self.overconfidence > 0 else (1.0,)

    @property
    def influence_bound(self) -> float:
        """The upper bound sB of the derivative, on a side of weight 1."""
        return self.scale * self.rho_function.influence_bound

    @property
    def curvature_support(self) -> float:
        r"""The \|r\| beyond which φ'' is zero."""
        return self.scale * self.rho_function.curvature_support

    def influence_inverse(self, c: FloatArray) -> FloatArray:
        r"""Return the residual r with sψ(r/s) = c, for \|c\| ≤ sB; unchecked."""
        ratio = np.minimum(np.abs(c) / self.scale, self.rho_function.influence_bound)
        with np.errstate(all="ignore"):
            return np.asarray(np.copysign(self.scale * self.rho_function.inverse(np, ratio), c))

    def conjugate(self, c: FloatArray) -> FloatArray:
        """Return the conjugate sup(c r - s²ρ(r/s)) over r, for c as in `influence_inverse`.

        On a side of weight w it is w times the conjugate at c/w.
        """
        residual = self.influence_inverse(c)
        # At the bound of the influence the residual is infinite and the conjugate its limit.
        residual = np.where(np.isinf(residual), 1e7 * self.scale, residual)
        return np.asarray(c * residual - self.rho_function.value(residual, self.scale))

    def value(self, margin: ArrayLike) -> Elementwise:
        """Evaluate φ at each margin.

        Parameters
        ----------
        margin : array_like
            Margins y h(x), any real numbers including ±inf.

        Returns
        -------
        ndarray or scalar
            φ(m) ≥ 0.

        Examples
        --------
        >>> from marginpursuit.losses import MarginLoss
        >>> MarginLoss(overconfidence=0.5).value([0.0, 1.0, 2.0])
        array([0.45833333, 0.        , 0.22916667])
        """
        residual, weight = self._residual_and_weight(margin)
        return like(self.rho_function.value(residual, self.scale, weight), margin)

    def derivative(self, margin: ArrayLike) -> Elementwise:
        """Evaluate φ' at each margin: the derivative in the margin, negative below the level.

        Parameters
        ----------
        margin : array_like
            Margins y h(x), any real numbers including ±inf.

        Returns
        -------
        ndarray or scalar
            φ'(m) = -s ψ((γ - m)/s), times the overconfidence weight above the level.

        Examples
        --------
        >>> from marginpursuit.losses import MarginLoss
        >>> MarginLoss(overconfidence=0.5).derivative([-9.0, 0.0, 2.0])
        array([-0.94280904, -0.83333333,  0.41666667])
        """
        residual, weight = self._residual_and_weight(margin)
        return like(-self.rho_function.influence(residual, self.scale, weight), margin)

    def curvature(self, margin: ArrayLike) -> Elementwise:
        """Evaluate φ'' at each margin, in [0, 1]; at the level itself, the value from below.

        Parameters
        ----------
        margin : array_like
            Margins y h(x), any real numbers including ±inf.

        Returns
        -------
        ndarray or scalar
            φ''(m) = ρ''((γ - m)/s), times the overconfidence weight above the level.

        Examples
        --------
        >>> from marginpursuit.losses import MarginLoss
        >>> MarginLoss(overconfidence=0.5).curvature([-9.0, 0.0, 1.0, 2.0])
        array([0.  , 0.5 , 1.  , 0.25])
        """
        residual, weight = self._residual_and_weight(margin)
        return like(self.rho_function.curvature(residual, self.scale, weight), margin)

    def link(self, score: Any) -> Any:
        """Return the probability of the positive class whose optimal score is given; unchecked.

        It is the same for every overconfidence; see `margin_link`.

        Parameters
        ----------
        score : array
            Scores h(x), of any array library.

        Returns
        -------
        array
            Probabilities in [0, 1].

        Examples
        --------
        >>> import numpy as np
        >>> from marginpursuit.losses import MarginLoss
        >>> MarginLoss(rho="square").link(np.array([-2.0, 0.0, 0.5]))
        array([0.  , 0.5 , 0.75])
        """
        return margin_link(self.rho_function, score, self.margin, self.scale)

    def value_and_derivative(self, margin: Any, weight: Any) -> tuple[Any, Any]:
        """Evaluate φ and φ' times weights, unchecked, for arrays of any library."""
        parameters = (self.margin, self.scale, self.overconfidence)
        return margin_value_and_derivative(self.rho_function, *parameters, margin, weight)

    def _residual_and_weight(self, margin: ArrayLike) -> tuple[FloatArray, FloatArray]:
        with np.errstate(over="ignore"):  # a residual beyond the largest float counts as infinite
            residual = self.margin - real("margin", margin)
        weight = np.where(residual < 0, self.overconfidence, 1.0)
        if self.overconfidence == 0:
            residual = np.maximum(residual, 0.0)  # an infinite residual of weight 0 costs 0
        return residual, weight


def margin_value_and_derivative(
    rho: Rho, level: Any, scale: Any, overconfidence: Any, margin: Any, weight: Any
) -> tuple[Any, Any]:
    """Evaluate margin losses and their derivatives times weights, unchecked.

    Level, scale and overconfidence are numbers, or arrays with an entry for each task; the margins
    then have a column for each task. Weights are an array that broadcasts with the margins.
    """
    residual = level - margin
    xp = array_functions(residual)
    weight = xp.where(residual < 0, weight * overconfidence, weight)
    # An infinite residual of weight 0 costs 0.
    residual = xp.where(weight > 0, residual, xp.zeros_like(residual))
    return rho.value(residual, scale, weight), -rho.influence(residual, scale, weight)


def margin_link(rho: Rho, score: Any, level: Any, scale: Any) -> Any:
    r"""Return the probability of the positive class whose optimal score is given; unchecked.

    .. math::

        \eta(u) = \frac{\psi((\gamma + u)/s)}{\psi((\gamma + u)/s) + \psi((\gamma - u)/s)}
        \quad (|u| < \gamma), \qquad 0 \text{ or } 1 \text{ beyond.}

    Scores are a float64 array of any library; level and scale are numbers or, for NumPy, arrays.
    """
    xp = array_functions(score)
    with np.errstate(over="ignore"):
        # At γ/s < 1e-100 ψ is linear to double precision, and larger scales underflow.
        width = np.minimum(scale, 1e100 * level)
        width = width if xp is np else float(width)
        size = at_most(xp, xp.abs(score), level)
        above = rho.influence(level / width + size / width)
        below = rho.influence((level - size) / width)
        return xp.where(score < 0, below, above) / (above + below)


def stacked(losses: Sequence[Any], place: Callable[[FloatArray], Any]) -> Evaluation:
    """Return a function of margins and weights that evaluates a loss for each column.

    It returns weighted losses and weighted derivatives. The losses offer `value_and_derivative`;
    `place` turns a NumPy vector of parameters into an array of the library and dtype of the
    margins.
    """
    first = losses[0]
    if isinstance(first, MarginLoss) and all(
        isinstance(loss, MarginLoss) and loss.rho == first.rho for loss in losses
    ):
        columns = zip(*((x.margin, x.scale, x.overconfidence) for x in losses), strict=True)
        parameters = [place(np.array(column)) for column in columns]
        return partial(margin_value_and_derivative, first.rho_function, *parameters)
    if all(loss == first for loss in losses):
        return first.value_and_derivative  # type: ignore[no-any-return]
    return partial(_column_by_column, losses)


def _column_by_column(losses: Sequence[Any], margins: Any, weight: Any) -> tuple[Any, Any]:
    xp = array_functions(margins)
    weight = weight + xp.zeros_like(margins)
    found = [
        loss.value_and_derivative(margins[:, k], weight[:, k]) for k, loss in enumerate(losses)
    ]
    values, derivatives = zip(*found, strict=True)
    return xp.stack(values, axis=1), xp.stack(derivatives, axis=1)
