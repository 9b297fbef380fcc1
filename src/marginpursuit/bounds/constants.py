r"""The constants of the bounds, estimated from data."""

import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize

from marginpursuit._validation import FloatArray, between, inside
from marginpursuit.bounds._parts import Parts, positive_number
from marginpursuit.losses import MarginLoss, curvature

__all__ = ["DataConstants", "estimate_constants"]


@dataclass(frozen=True, repr=False, slots=True, eq=False)
class DataConstants(Parts):
    """Constants of a data set; see `estimate_constants`. Every bound takes them as `constants`.

    Attributes
    ----------
    n : int
        Number of observations.
    dimension : int
        Dimension of the space that the inputs span.
    margin, scale : float
        The level γ and the scale s of the loss.
    second_moment, spectral_moment : float
        E‖x‖² and ‖E xxᵀ‖.
    input_bound : float
        The largest ‖x‖.
    strong_convexity : float
        κ, a lower bound on the curvature of the surrogate risk on W; 0 if there is none.
    sub_gaussian : float
        c of assumption A3.
    diameter : float
        Δ, the diameter of W.
    initial_distance : float
        The distance of w* from the start: ‖w*‖ for a start at zero, and at most the radius of W.
    variance, absolute_third, third, fourth : float
        Central moments of the margins of w*: the second, E|m - Em|³, the third and the fourth.
    coef : ndarray of shape (n_features,)
        w*, the minimiser of the empirical risk.
    margins : ndarray of shape (n,)
        Its margins.
    norms : ndarray of shape (n,)
        ‖x‖ of each observation.
    failures : tuple of str
        The assumptions that fail on the data, each with the reason; also warned of.

    Examples
    --------
    >>> import numpy as np
    >>> from marginpursuit.bounds import estimate_constants
    >>> X = np.random.default_rng(0).normal(size=(500, 2))
    >>> constants = estimate_constants(X, np.sign(X @ [2.0, -1.0]))
    >>> constants.n, constants.dimension, constants.margins.shape
    (500, 2, (500,))
    """

    n: int
    dimension: int
    margin: float
    scale: float
    second_moment: float
    spectral_moment: float
    input_bound: float
    strong_convexity: float
    sub_gaussian: float
    diameter: float
    initial_distance: float
    variance: float
    absolute_third: float
    third: float
    fourth: float
    coef: FloatArray
    margins: FloatArray
    norms: FloatArray
    failures: tuple[str, ...]

    #: What the use of an estimate as the constant of the distribution assumes.
    assumptions: ClassVar[dict[str, str]] = {
        "dimension": "the distribution of x has no direction that the sample does not have",
        "second_moment": "‖x‖² has a finite mean, and the sample mean is close to it",
        "spectral_moment": "E xxᵀ is finite, and close to the mean over the sample",
        "input_bound": "no ‖x‖ of the distribution exceeds the largest of the sample",
        "strong_convexity": (
            "A1, A2: the surrogate risk is strongly convex on W, a ball around its minimiser w*; "
            "κ of the sample is close to that of the distribution"
        ),
        "sub_gaussian": (
            "A3: the gradients b(w) = ψ((γ - m)/s) y x are sub-Gaussian; c is estimated at w*, "
            "along the principal axes of their covariance"
        ),
        "diameter": "A0: the iterates stay in W",
        "initial_distance": "the start is zero; ‖w*‖ of the sample is that of the distribution",
        "variance": "the margins of w* have finite moments, and w* is fixed before the sample",
    }

    @property
    def unit_margins(self) -> FloatArray:
        """The margins of w*/‖w*‖."""
        return np.asarray(self.margins / np.linalg.norm(self.coef))

    @property
    def unit_row_margins(self) -> FloatArray:
        """The margins of w*/‖w*‖ on the inputs x/‖x‖, an even number of them."""
        margins = self.unit_margins / np.where(self.norms > 0, self.norms, 1.0)
        return np.asarray(margins[: len(margins) // 2 * 2])


def estimate_constants(
    X: Any,
    y: ArrayLike,
    *,
    margin: float = 1.0,
    scale: float | None = None,
    radius: float | None = None,
) -> DataConstants:
    r"""Estimate the constants of the bounds from a sample, and warn where an assumption fails.

    The moments of x are means over the sample. w* is the minimiser of the empirical risk without
    penalty and intercept. W is the ball around w* of the given radius, Δ is its diameter, and

    .. math:: \kappa = \lambda_{\min} \Bigl( \frac1n \sum_i
        \rho''\Bigl(\frac{|\gamma - m_i| + r\|x_i\|}{s}\Bigr) x_i x_i^\top \Bigr)

    in the space that the inputs span: ρ''(u) decreases with \|u\|, and no w in W changes a margin
    by more than r‖x‖, so that κ bounds the curvature of the empirical risk on W from below. c is
    the largest ratio log E exp(a⟨u, b - Eb⟩)/(a²⟨u, Σu⟩) over the principal axes u of the gradients
    b at w* and numbers a, and at least 1/2.

    These are estimates, not bounds: a bound with them holds up to the errors of estimation.
    `DataConstants.assumptions` names what each of them assumes.

    Parameters
    ----------
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Inputs with finite values.
    y : array-like of shape (n_samples,)
        Labels, -1 or +1, both present.
    margin : float, default=1.0
        The level γ > 0.
    scale : float, optional
        The scale s > 0. By default that with the smallest s/κ, to which the dominant term of
        :func:`algorithm_risk_bound` is proportional; κ is that of the least-squares fit to γ then.
    radius : float, optional
        The radius r > 0 of W. By default ‖w*‖, such that a start at zero is in W, and with exact
        gradients all iterates are. A smaller one needs a start that is closer to w*.

    Returns
    -------
    DataConstants
        The constants.

    Warns
    -----
    UserWarning
        For each assumption that fails on the sample; `failures` has the same sentences.

    Examples
    --------
    >>> import numpy as np
    >>> from marginpursuit.bounds import algorithm_risk_bound, estimate_constants
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(2000, 3))
    >>> y = np.sign(X @ [2.0, -1.0, 0.5])
    >>> constants = estimate_constants(X, y)
    >>> constants.dimension, constants.failures
    (3, ())
    >>> bound = algorithm_risk_bound(constants=constants, n=10**7, iterations=1000)
    >>> bound.vacuous
    False
    """
    rows, labels = _checked(X, y)
    n = len(rows)
    norms = np.linalg.norm(rows, axis=1)
    values, axes = np.linalg.eigh(rows.T @ rows / n)
    spanned = values > 1e-10 * values[-1]
    if not np.any(spanned & (values > 0)):
        raise ValueError("X must have a row other than zero; all entries are zero")
    axes, values = axes[:, spanned], values[spanned]
    inputs = rows @ axes  # coordinates in the space that the rows span
    level = positive_number("margin", margin)
    given = None if radius is None else positive_number("radius", radius)
    if scale is None:
        fit = level * np.linalg.solve(inputs.T @ inputs, inputs.T @ labels)
        fit_radius = float(np.linalg.norm(fit)) if given is None else given
        chosen = _best_scale(inputs, norms, level, labels * (inputs @ fit), fit_radius)
    else:
        chosen = positive_number("scale", scale)
    loss = MarginLoss(level, chosen)
    coef = _minimiser(inputs, labels, loss, values)
    margins = labels * (inputs @ coef)
    distance = float(np.linalg.norm(coef))
    ball = distance if given is None else given
    kappa = _least_curvature(inputs, norms, level, margins, ball, chosen)
    residuals = margins - margins.mean()
    failures = _failures(n, rows.shape[1], inputs.shape[1], norms, kappa)
    for failure in failures:
        warnings.warn(failure, UserWarning, stacklevel=2)
    return DataConstants(
        n=n,
        dimension=inputs.shape[1],
        margin=level,
        scale=chosen,
        second_moment=float(np.mean(norms**2)),
        spectral_moment=float(values[-1]),
        input_bound=float(norms.max()),
        strong_convexity=kappa,
        sub_gaussian=_sub_gaussian_constant(inputs, labels, margins, loss),
        diameter=2.0 * ball,
        initial_distance=min(distance, ball),
        variance=float(np.mean(residuals**2)),
        absolute_third=float(np.mean(np.abs(residuals) ** 3)),
        third=float(np.mean(residuals**3)),
        fourth=float(np.mean(residuals**4)),
        coef=axes @ coef,
        margins=margins,
        norms=norms,
        failures=failures,
    )


def _checked(X: Any, y: ArrayLike) -> tuple[FloatArray, FloatArray]:
    rows = inside("X", X.toarray() if hasattr(X, "toarray") else X, -np.inf, np.inf)
    if rows.ndim != 2 or 0 in rows.shape:
        raise ValueError(f"X must have rows and columns; got shape {rows.shape}")
    labels = between("y", y, -1.0, 1.0)
    if labels.shape != rows.shape[:1] or np.unique(labels).tolist() != [-1.0, 1.0]:
        raise ValueError(
            f"y must contain -1 and +1, one for each of {len(rows)} samples; got shape "
            f"{labels.shape} with values {np.unique(labels)[:5]}"
        )
    return rows, labels


def _minimiser(
    inputs: FloatArray, labels: FloatArray, loss: MarginLoss, moments: FloatArray
) -> FloatArray:
    """Minimise the mean loss, in coordinates in which the second moments of the inputs are one."""
    signed = labels[:, np.newaxis] * inputs / np.sqrt(moments)

    def value_and_gradient(w: FloatArray) -> tuple[float, FloatArray]:
        margins = signed @ w
        slope = np.asarray(loss.derivative(margins))
        return float(np.mean(loss.value(margins))), slope @ signed / len(signed)

    found = optimize.minimize(
        value_and_gradient,
        np.zeros(signed.shape[1]),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 1000, "ftol": 1e-15, "gtol": 1e-9},
    )
    return np.asarray(found.x / np.sqrt(moments))


def _least_curvature(
    inputs: FloatArray,
    norms: FloatArray,
    level: float,
    margins: FloatArray,
    radius: float,
    scale: float,
) -> float:
    """Return κ, the least eigenvalue of the formula of `estimate_constants`."""
    weights = np.asarray(curvature((np.abs(level - margins) + radius * norms) / scale))
    moments = (inputs * weights[:, np.newaxis]).T @ inputs / len(inputs)
    return max(0.0, float(np.linalg.eigvalsh(moments)[0]))


def _best_scale(
    inputs: FloatArray, norms: FloatArray, level: float, margins: FloatArray, radius: float
) -> float:
    """Return the scale with the smallest s/κ, of ten between γ/2 and that where all rows count."""
    largest = max(level, float(np.max(np.abs(level - margins) + radius * norms)))
    scales = np.geomspace(0.5 * level, 2.0 * largest, 10)
    ratios = [
        scale / max(_least_curvature(inputs, norms, level, margins, radius, scale), 1e-300)
        for scale in scales
    ]
    return float(scales[np.argmin(ratios)])


def _sub_gaussian_constant(
    inputs: FloatArray, labels: FloatArray, margins: FloatArray, loss: MarginLoss
) -> float:
    """Return the largest log E exp(a u)/(a² E u²) over axes u of the gradients and numbers a."""
    factors = -np.asarray(loss.derivative(margins)) * labels / loss.scale
    gradients = factors[:, np.newaxis] * inputs
    gradients -= gradients.mean(axis=0)
    values, axes = np.linalg.eigh(gradients.T @ gradients / len(gradients))
    varying = values > 1e-12 * max(values[-1], 1e-300)
    along = gradients @ axes[:, varying] / np.sqrt(values[varying])
    largest = 0.5
    for a in np.geomspace(0.1, 20.0, 12):
        for sign in (-a, a):
            exponents = sign * along
            top = exponents.max(axis=0)
            log_means = top + np.log(np.mean(np.exp(exponents - top), axis=0))
            largest = max(largest, float(log_means.max(initial=0.0) / (a * a)))
    return largest


def _failures(
    n: int, n_columns: int, dimension: int, norms: FloatArray, kappa: float
) -> tuple[str, ...]:
    """Return the assumptions that fail on the sample, each with the reason."""
    found = []
    if dimension < n_columns:
        found.append(
            f"strong_convexity: E xxᵀ is singular, the {n_columns} columns span {dimension} "
            "dimensions. The constants hold in that space, which every iterate from zero is in."
        )
    if n < 10 * dimension:
        found.append(
            f"strong_convexity, second_moment: {n} rows are less than ten for each of {dimension} "
            "dimensions; moments in single directions are poorly estimated. Use more rows."
        )
    if kappa == 0.0:
        found.append(
            "strong_convexity: the loss has no curvature on W in some direction. Pass a larger "
            "scale or a smaller radius."
        )
    index = _tail_index(norms)
    if index < 4.0:
        found.append(
            "sub_gaussian, second_moment: the largest norms of rows decrease like a power law with "
            f"the exponent {index:.1f}; sub-Gaussian inputs (A3) have an infinite one. Bound or "
            "transform the columns."
        )
    return tuple(found)


def _tail_index(norms: FloatArray) -> float:
    """Return Hill's estimate of the tail index from the √n largest norms; inf if they are equal."""
    top = np.sort(norms[norms > 0])[::-1][: int(np.sqrt(len(norms))) + 1]
    if len(top) < 6:
        return np.inf
    excess = float(np.mean(np.log(top[:-1] / top[-1])))
    return 1.0 / excess if excess > 0 else np.inf
