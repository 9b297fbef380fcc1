r"""The loss for other learners: PyTorch, JAX, LightGBM, XGBoost and CatBoost.

All functions evaluate the formulas of :mod:`marginpursuit.losses`. With two classes and a score f
the margin is m = ±f, and the loss :class:`~marginpursuit.losses.MarginLoss` φ(m). With K classes
and K scores it is the joint loss :class:`~marginpursuit.losses.JointLoss`, which needs
``overconfidence=0``.

Boosting libraries make Newton steps, so they ask for a second derivative. φ'' is zero for large
residuals of a bounded ρ, where a Newton step would be infinite. The objectives therefore return the
curvature of the *majoriser* at the margin, :math:`\psi(u)/u` with :math:`u = (\gamma - m)/s`: the
quadratic function with this curvature touches the loss at m and lies above it, so that the step of
a leaf does not increase the loss. ``hessian="exact"`` returns φ'' instead.

The packages are imported when a function is called; none is needed to import this module.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from marginpursuit._validation import FloatArray
from marginpursuit.losses import JointLoss, MarginLoss

__all__ = [
    "catboost_objective",
    "jax_loss",
    "lightgbm_objective",
    "margin_probabilities",
    "torch_loss",
    "xgboost_objective",
]

# Boosting libraries divide by sums of second derivatives. Rows without curvature count with this
# fraction of the largest curvature, 1, so that a leaf of such rows has a finite value.
_LEAST_CURVATURE = 1e-3


def lightgbm_objective(
    *,
    margin: float = 1.0,
    scale: float = 1.0,
    overconfidence: float = 0.0,
    rho: str = "catoni",
    hessian: str = "majoriser",
) -> Callable[[ArrayLike, ArrayLike, ArrayLike | None], tuple[FloatArray, FloatArray]]:
    """Return an objective for ``LGBMClassifier(objective=...)``, LightGBM 4.

    Labels are 0, 1, ...; raw scores have shape (n,) or, for several classes, (n, K). With an
    objective of its own LightGBM predicts raw scores: :func:`margin_probabilities` turns them into
    probabilities.

    Parameters
    ----------
    margin : float, default=1.0
        The level γ.
    scale : float, default=1.0
        The scale s.
    overconfidence : float, default=0.0
        The weight τ of margins above the level; 0 for several classes.
    rho : str, default="catoni"
        The function ρ, a name in :data:`~marginpursuit.losses.RHOS`.
    hessian : {"majoriser", "exact"}, default="majoriser"
        The second derivative: that of a quadratic upper bound, or φ''.

    Returns
    -------
    callable
        A function of labels, raw scores and weights that returns gradients and second derivatives.

    Examples
    --------
    >>> import numpy as np
    >>> from marginpursuit.interop import lightgbm_objective
    >>> objective = lightgbm_objective()
    >>> gradient, hessian = objective(np.array([0, 1]), np.array([0.5, 0.5]), None)
    >>> gradient.round(3)
    array([ 0.943, -0.479])
    """
    loss = MarginLoss(margin, scale, overconfidence, rho)
    _check_hessian(hessian)

    def objective(
        y_true: ArrayLike, y_pred: ArrayLike, weight: ArrayLike | None
    ) -> tuple[FloatArray, FloatArray]:
        return _derivatives(loss, y_true, y_pred, weight, hessian)

    return objective


def xgboost_objective(
    *,
    margin: float = 1.0,
    scale: float = 1.0,
    overconfidence: float = 0.0,
    rho: str = "catoni",
    hessian: str = "majoriser",
) -> Callable[..., tuple[FloatArray, FloatArray]]:
    """Return an objective for ``XGBClassifier(objective=...)`` of XGBoost's scikit-learn interface.

    Set ``base_score=0``. ``XGBClassifier.predict_proba`` applies a sigmoid to the scores, which is
    not the link of this loss: use ``predict(..., output_margin=True)`` and
    :func:`margin_probabilities`.

    Parameters
    ----------
    margin : float, default=1.0
        The level γ.
    scale : float, default=1.0
        The scale s.
    overconfidence : float, default=0.0
        The weight τ of margins above the level; 0 for several classes.
    rho : str, default="catoni"
        The function ρ, a name in :data:`~marginpursuit.losses.RHOS`.
    hessian : {"majoriser", "exact"}, default="majoriser"
        The second derivative: that of a quadratic upper bound, or φ''.

    Returns
    -------
    callable
        A function of labels, raw scores and ``sample_weight`` that returns gradients and second
        derivatives.

    Examples
    --------
    >>> import numpy as np
    >>> from marginpursuit.interop import xgboost_objective
    >>> gradient, hessian = xgboost_objective()(np.array([0, 1]), np.array([2.0, 2.0]))
    >>> gradient.round(3)
    array([ 0.943, -0.   ])
    """
    loss = MarginLoss(margin, scale, overconfidence, rho)
    _check_hessian(hessian)

    def objective(
        y_true: ArrayLike, y_pred: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> tuple[FloatArray, FloatArray]:
        return _derivatives(loss, y_true, y_pred, sample_weight, hessian)

    return objective


class _CatBoostObjective:
    """The methods that CatBoost calls; it maximises, so derivatives have the opposite sign."""

    def __init__(self, loss: MarginLoss, hessian: str) -> None:
        self._loss, self._hessian = loss, hessian

    def calc_ders_range(
        self,
        approxes: Sequence[float],
        targets: Sequence[float],
        weights: Sequence[float] | None,
    ) -> list[tuple[float, float]]:
        # CatBoost's containers have a length and entries, and NumPy does not read them as arrays.
        scores, labels = _entries(approxes), _entries(targets)
        weight = None if weights is None else _entries(weights)
        pair = _derivatives(self._loss, labels, scores, weight, self._hessian)
        return list(zip((-pair[0]).tolist(), (-pair[1]).tolist(), strict=True))


def _entries(values: Sequence[float]) -> FloatArray:
    return np.array([values[i] for i in range(len(values))], dtype=np.float64)


def catboost_objective(
    *,
    margin: float = 1.0,
    scale: float = 1.0,
    overconfidence: float = 0.0,
    rho: str = "catoni",
    hessian: str = "majoriser",
) -> Any:
    """Return an objective for ``CatBoostClassifier(loss_function=...)`` with two classes.

    CatBoost calls it from Python for every row block: it is slower than its own losses. Give
    `learning_rate` and `eval_metric` too.

    Parameters
    ----------
    margin : float, default=1.0
        The level γ.
    scale : float, default=1.0
        The scale s.
    overconfidence : float, default=0.0
        The weight τ of margins above the level.
    rho : str, default="catoni"
        The function ρ, a name in :data:`~marginpursuit.losses.RHOS`.
    hessian : {"majoriser", "exact"}, default="majoriser"
        The second derivative: that of a quadratic upper bound, or φ''.

    Returns
    -------
    object
        An object with the method `calc_ders_range`.

    Examples
    --------
    >>> from marginpursuit.interop import catboost_objective
    >>> catboost_objective().calc_ders_range([0.0, 3.0], [1.0, 1.0], None)
    [(0.8333333333333334, -0.8333333333333334), (0.0, -0.001)]
    """
    _check_hessian(hessian)
    return _CatBoostObjective(MarginLoss(margin, scale, overconfidence, rho), hessian)


def margin_probabilities(
    scores: ArrayLike, *, margin: float = 1.0, scale: float = 1.0, rho: str = "catoni"
) -> FloatArray:
    """Return the probabilities whose optimal scores are given, by the exact link of the loss.

    Parameters
    ----------
    scores : array_like of shape (n,) or (n, K)
        Raw scores of a model trained with one of the objectives.
    margin : float, default=1.0
        The level γ of the objective.
    scale : float, default=1.0
        The scale s of the objective.
    rho : str, default="catoni"
        The function ρ of the objective.

    Returns
    -------
    ndarray of shape (n, 2) or (n, K)
        Probabilities of the classes.

    Examples
    --------
    >>> from marginpursuit.interop import margin_probabilities
    >>> margin_probabilities([-2.0, 0.0, 0.5]).round(3)
    array([[1.   , 0.   ],
           [0.5  , 0.5  ],
           [0.337, 0.663]])
    """
    loss = MarginLoss(margin, scale, 0.0, rho)
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim == 2 and values.shape[1] > 1:
        return np.asarray(JointLoss.at_level(loss).link(values))
    positive = np.asarray(loss.link(values.reshape(len(values))))
    return np.stack([1.0 - positive, positive], axis=1)


def torch_loss(
    *,
    margin: float = 1.0,
    scale: float = 1.0,
    overconfidence: float = 0.0,
    rho: str = "catoni",
    reduction: str = "mean",
) -> Any:
    """Return the loss as a ``torch.nn.Module``.

    Its ``forward(scores, target, weight=None)`` takes scores of shape (n,) or (n, 1) with targets 0
    and 1, or scores of shape (n, K) with targets 0 to K - 1. `weight` has an entry for each row;
    "mean" is then the weighted mean. float16 and bfloat16 are evaluated in float32. The first and
    second derivatives are those of the formulas.

    Parameters
    ----------
    margin : float, default=1.0
        The level γ.
    scale : float, default=1.0
        The scale s.
    overconfidence : float, default=0.0
        The weight τ of margins above the level; 0 for several classes.
    rho : str, default="catoni"
        The function ρ, a name in :data:`~marginpursuit.losses.RHOS`.
    reduction : {"mean", "sum", "none"}, default="mean"
        How the losses of the rows are combined.

    Returns
    -------
    torch.nn.Module
        The loss.

    Examples
    --------
    >>> from marginpursuit.interop import torch_loss
    >>> import torch  # doctest: +SKIP
    >>> torch_loss()(torch.tensor([0.0, 2.0]), torch.tensor([1, 1]))  # doctest: +SKIP
    tensor(0.2292)
    """
    from marginpursuit._torch_loss import TorchMarginLoss

    return TorchMarginLoss(MarginLoss(margin, scale, overconfidence, rho), reduction)


def jax_loss(
    *, margin: float = 1.0, scale: float = 1.0, overconfidence: float = 0.0, rho: str = "catoni"
) -> Callable[[Any, Any], Any]:
    """Return the loss of one row as a pure JAX function of scores and target.

    The score is a number with target 0 or 1, or a vector of K scores with target 0 to K - 1. Use
    `jax.vmap` for several rows; `jax.jit` and `jax.grad` work as usual.

    Parameters
    ----------
    margin : float, default=1.0
        The level γ.
    scale : float, default=1.0
        The scale s.
    overconfidence : float, default=0.0
        The weight τ of margins above the level; 0 for several classes.
    rho : str, default="catoni"
        The function ρ, a name in :data:`~marginpursuit.losses.RHOS`.

    Returns
    -------
    callable
        A function of (scores, target).

    Examples
    --------
    >>> from marginpursuit.interop import jax_loss
    >>> import jax  # doctest: +SKIP
    >>> jax.grad(jax_loss())(0.0, 1)  # doctest: +SKIP
    Array(-0.8333333, dtype=float32, weak_type=True)
    """
    try:
        import jax
        import jax.numpy as jnp
    except ImportError as error:
        raise ImportError("jax_loss needs the package jax; install it with pip") from error
    loss = MarginLoss(margin, scale, overconfidence, rho)
    joint_temperature = JointLoss.at_level(loss).temperature if overconfidence == 0 else None

    # The formulas of ρ take the functions of an array library; traced values have no other sign of
    # the library that they belong to.
    formulas = loss.rho_function

    def residual_and_weight(m: Any) -> tuple[Any, Any]:
        weight = jnp.where(m > loss.margin, loss.overconfidence, 1.0)
        return jnp.where(weight > 0, loss.margin - m, 0.0), weight

    def value(m: Any) -> Any:
        residual, weight = residual_and_weight(m)
        return formulas.scaled_value(jnp, jnp.abs(residual), loss.scale, weight)

    def value_and_tangent(primals: Any, tangents: Any) -> Any:
        residual, weight = residual_and_weight(primals[0])
        size = weight * formulas.scaled_influence(jnp, jnp.abs(residual), loss.scale)
        return value(primals[0]), -jnp.copysign(size, residual) * tangents[0]

    of_margin = jax.custom_jvp(value)
    of_margin.defjvp(value_and_tangent)

    def evaluate(scores: Any, target: Any) -> Any:
        scores = jnp.asarray(scores)
        wide = scores.astype(jnp.promote_types(scores.dtype, jnp.float32))
        if wide.ndim == 0:
            return of_margin(jnp.where(jnp.asarray(target) > 0, wide, -wide))
        _check_joint(loss)
        others = jnp.where(jnp.arange(wide.shape[0]) == target, -jnp.inf, wide)
        smooth_maximum = joint_temperature * jax.nn.logsumexp(others / joint_temperature)
        return of_margin(wide[target] - smooth_maximum)

    return evaluate


def _check_hessian(hessian: str) -> None:
    if hessian not in ("majoriser", "exact"):
        raise ValueError(f'hessian must be "majoriser" or "exact"; got {hessian!r}')


def _check_joint(loss: MarginLoss) -> None:
    if loss.overconfidence != 0:
        raise ValueError(
            f"got scores of several classes with overconfidence={loss.overconfidence}; the joint "
            "loss needs overconfidence=0. Set it to 0, or train one class against the rest."
        )


def _derivatives(
    loss: MarginLoss, y_true: ArrayLike, y_pred: ArrayLike, weight: ArrayLike | None, hessian: str
) -> tuple[FloatArray, FloatArray]:
    """Return gradient and second derivative of each score, in the shape of the scores."""
    scores = np.asarray(y_pred, dtype=np.float64)
    codes = np.asarray(y_true).astype(np.intp)
    weights = np.ones(len(codes)) if weight is None else np.asarray(weight, dtype=np.float64)
    if scores.ndim == 2 and scores.shape[1] > 1:
        _check_joint(loss)
        return _joint_derivatives(loss, codes, scores, weights, hessian)
    sign = np.where(codes > 0, 1.0, -1.0)
    margins = sign * scores.reshape(-1)
    gradient = weights * sign * loss.derivative(margins)
    curvature = weights * _curvature(loss, margins, hessian)
    return gradient.reshape(scores.shape), curvature.reshape(scores.shape)


def _joint_derivatives(
    loss: MarginLoss, codes: Any, scores: FloatArray, weights: FloatArray, hessian: str
) -> tuple[FloatArray, FloatArray]:
    """Return gradients and the diagonal of the Hessian; see the module `losses.joint`."""
    joint = JointLoss.at_level(loss)
    gradient = joint.value_and_gradient(scores, codes, weights)[1]
    margins = joint.margins(scores, codes)
    slope = np.abs(loss.derivative(margins))[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        softmax = np.abs(gradient) / (weights[:, None] * slope)  # p, and 1 for the row's class
    softmax = np.where(slope > 0, softmax, 0.0)
    own = np.arange(scores.shape[1]) == codes[:, None]
    of_softmax = np.where(own, 0.0, softmax * (1.0 - softmax)) * slope / joint.temperature
    curvature = _curvature(loss, margins, hessian)[:, None] * softmax**2 + of_softmax
    return gradient, weights[:, None] * np.maximum(curvature, _LEAST_CURVATURE)


def _curvature(loss: MarginLoss, margins: FloatArray, hessian: str) -> FloatArray:
    if hessian == "exact":
        return np.asarray(np.maximum(loss.curvature(margins), _LEAST_CURVATURE))
    residual = loss.margin - margins
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.where(residual == 0, 1.0, -np.asarray(loss.derivative(margins)) / residual)
    return np.asarray(np.maximum(ratio, _LEAST_CURVATURE))
