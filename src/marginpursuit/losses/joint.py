r"""A loss of the scores of several classes: the margin loss against a smooth maximum of the others.

For scores f of K classes, a row of class y and a temperature T > 0, the *joint margin* is

.. math::

    m = f_y - T \log \sum_{k \ne y} e^{f_k / T} ,

the score of the class of the row less a smooth maximum of the other scores, which exceeds their
maximum by at most T log(K - 1). The loss is φ(m), for a margin loss φ without overconfidence.

**Convexity.** m is concave in f, and φ is convex and non-increasing: φ(m) is convex in f.

**Derivatives.** With p the softmax of f/T over the classes k ≠ y, and p_y = -1,

.. math::

    \nabla m = -p, \qquad
    \nabla^2 \varphi = \varphi''(m)\, p\, p^\top + \frac{|\varphi'(m)|}{T}
        (\operatorname{diag} q - q q^\top),

where q is p with a zero for y. Since ‖p‖² ≤ 2 and diag q - qqᵀ has eigenvalues in [0, 1/2], the
Hessian is at most 2 + sB/(2T) times the identity; its trace is at most 2 + sB/T.

**Dual.** -m is the largest value of p·f + T H(p) over probabilities p of the classes k ≠ y, with
p_y = -1 and the entropy H, and φ(m) that of -βm - φ*(-β) over β ≥ 0. The conjugate of φ(m(f)) is
therefore finite for dual variables a with a_k ≥ 0 for k ≠ y, Σ_k a_k = 0 and β = -a_y ≤ sB, where

.. math::

    (\varphi \circ m)^*(a) = \varphi^*(-\beta) + T \sum_{k \ne y} a_k \log \frac{a_k}{\beta},

and φ*(-β) is the conjugate of the loss in the residual at β, less γβ. For rows x_i of weights c_i
and a penalty α/2 Σ_j u_j ‖w_j‖² of the coefficients w_j of all classes, the dual problem is to
maximise

.. math::

    -\sum_i c_i\, (\varphi \circ m)^*(a_i)
        - \frac{1}{2 \alpha} \sum_j \frac{1}{u_j} \Bigl\| \sum_i c_i x_{ij} a_i \Bigr\|^2,

with Σ_i c_i a_i = 0 where there are intercepts. At a_i = ∇(φ∘m)(f_i) the duality gap is
Σ_j ‖g_j‖²/(2 α u_j), with the gradient g of the objective: the bound by strong convexity by which
solvers stop.

**Two classes.** Then m = f_y - f_k, and with f = (-h/2, h/2) it is y h: the binary loss of the
score h. The penalty of two coefficient vectors ∓w/2 is half the penalty of w.

**Probabilities.** Let the classes have probabilities η at a point x. The expected loss is least at
scores with

.. math::

    \eta_k \propto \frac{\pi_k (1 - \pi_k)}{|\varphi'(m_k)|}, \qquad
    \pi = \operatorname{softmax}(f / T), \qquad m_k = T \log \frac{\pi_k}{1 - \pi_k},

or puts all probability on the class with m_k ≥ γ, if there is one. (The derivative in f_k is zero
where a_k = η_k \|φ'(m_k)\| satisfies a_k = e_k Σ_{j≠k} a_j/(S - e_j), with e = exp(f/T) and S
their sum; then a_k ∝ e_k (S - e_k).) The most probable class has the largest score: for m_k ≤ 0 the
right side increases in m_k, and if m_k > 0 for one class, m_j ≤ -m_k for all others. The loss is
therefore classification-calibrated for every number of classes and every temperature.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from marginpursuit._validation import FloatArray, positive, real, scalar
from marginpursuit.losses.margin import MarginLoss
from marginpursuit.losses.rhos import array_functions


@dataclass(frozen=True, slots=True)
class JointLoss:
    r"""The margin loss of the scores of several classes, φ(f_y - T log Σ_{k≠y} exp(f_k/T)).

    Parameters
    ----------
    loss : MarginLoss
        The loss φ of the joint margin, with ``overconfidence=0``.
    temperature : float, default=0.3
        The temperature T > 0 of the smooth maximum, in the unit of the margin. The loss tends to
        that of the largest other score as T tends to zero.

    Examples
    --------
    >>> from marginpursuit.losses import JointLoss, MarginLoss
    >>> loss = JointLoss(MarginLoss(overconfidence=0.0))
    >>> loss.value([[2.0, 0.0, -1.0], [2.0, 0.0, -1.0]], [0, 1]).round(3)
    array([0.   , 2.328])
    >>> loss.gradient([[2.0, 0.0, -1.0]], [1]).round(3)
    array([[ 0.943, -0.943,  0.   ]])
    """

    loss: MarginLoss
    temperature: float = 0.3

    def __post_init__(self) -> None:
        temperature = scalar("temperature", positive("temperature", self.temperature))
        object.__setattr__(self, "temperature", temperature)
        if not isinstance(self.loss, MarginLoss) or self.loss.overconfidence != 0:
            raise ValueError(
                f"loss must be a MarginLoss with overconfidence=0; got {self.loss!r}. With a "
                "positive overconfidence the joint loss is not convex: fit one class against the "
                "rest instead."
            )

    @classmethod
    def at_level(cls, loss: MarginLoss, ratio: float = 0.3) -> "JointLoss":
        """Return the joint loss whose temperature is `ratio` times the level γ of the margin loss.

        Among 0.1, 0.3 and 1 the default ratio has the lowest log-loss in the mean over six data
        sets (docs/choosing.md).
        """
        return cls(loss, ratio * loss.margin)

    @property
    def margin(self) -> float:
        """The level γ of the joint margins."""
        return self.loss.margin

    @property
    def scale(self) -> float:
        """The scale s of the margin loss."""
        return self.loss.scale

    @property
    def curvature_bound(self) -> float:
        """The upper bound 2 + sB/(2T) of the eigenvalues of the Hessian in the scores."""
        return 2.0 + self.loss.influence_bound / (2.0 * self.temperature)

    def mean_curvature(self, n_classes: int) -> float:
        """Return a bound of the trace of the Hessian in the scores, divided by the classes.

        It is the factor by which the Gram matrix of the rows, one block for each class,
        approximates the Hessian in the coefficients. An unbounded derivative counts with its value
        at zero scores.
        """
        at_zero = _slope_at_zero(self, n_classes)
        slope = min(self.loss.influence_bound, at_zero)
        return (2.0 + slope / self.temperature) / n_classes

    def zero_margin(self, n_classes: int) -> float:
        """Return the joint margin -T log(K - 1) of rows whose scores are all zero."""
        return -self.temperature * float(np.log(n_classes - 1.0))

    def value(self, scores: ArrayLike, codes: ArrayLike) -> FloatArray:
        """Evaluate the loss of each row.

        Parameters
        ----------
        scores : array_like of shape (n_rows, n_classes)
            Scores f.
        codes : array_like of int of shape (n_rows,)
            The class y of each row, from 0 to n_classes - 1.

        Returns
        -------
        ndarray of shape (n_rows,)
            φ(m) ≥ 0.

        Examples
        --------
        >>> from marginpursuit.losses import JointLoss, MarginLoss
        >>> loss = JointLoss(MarginLoss(rho="square", overconfidence=0.0))
        >>> loss.value([[0.0, 0.0]], [1])  # two classes: the binary loss
        array([0.5])
        """
        return self.value_and_gradient(*_checked(scores, codes), 1.0)[0]  # type: ignore[no-any-return]

    def gradient(self, scores: ArrayLike, codes: ArrayLike) -> FloatArray:
        """Evaluate the gradient of the loss of each row in its scores.

        Parameters
        ----------
        scores : array_like of shape (n_rows, n_classes)
            Scores f.
        codes : array_like of int of shape (n_rows,)
            The class y of each row, from 0 to n_classes - 1.

        Returns
        -------
        ndarray of shape (n_rows, n_classes)
            φ'(m) for the class of the row and -φ'(m) p_k for the others; each row sums to zero.

        Examples
        --------
        >>> from marginpursuit.losses import JointLoss, MarginLoss
        >>> loss = JointLoss(MarginLoss(rho="square", overconfidence=0.0))
        >>> loss.gradient([[0.0, 0.0]], [1])
        array([[ 1., -1.]])
        """
        return self.value_and_gradient(*_checked(scores, codes), 1.0)[1]  # type: ignore[no-any-return]

    def margins(self, scores: Any, codes: Any) -> Any:
        """Return the joint margin of each row, unchecked, for arrays of any library."""
        return _margins(scores, codes, self.temperature)[0]

    def value_and_gradient(self, scores: Any, codes: Any, weight: Any) -> tuple[Any, Any]:
        """Evaluate loss and gradient times weights, unchecked, for arrays of any library.

        `weight` is a number or has an entry for each row.
        """
        xp = array_functions(scores)
        margin, is_own, softmax = _margins(scores, codes, self.temperature)
        value, derivative = self.loss.value_and_derivative(margin, weight + xp.zeros_like(margin))
        return value, derivative[:, None] * xp.where(is_own, xp.ones_like(softmax), -softmax)

    def hessian(
        self,
        scores: FloatArray,
        codes: NDArray[np.intp],
        weight: FloatArray,
        added_curvature: float = 0.0,
    ) -> FloatArray:
        """Return the Hessian of the loss of each row in its scores times its weight, unchecked.

        The shape is (n_rows, n_classes, n_classes). `added_curvature` is added to φ'' ≤ 1.
        """
        margin, is_own, softmax = _margins(scores, codes, self.temperature)
        change = np.where(is_own, -1.0, softmax)  # p
        others = np.where(is_own, 0.0, softmax)  # q
        curvature = weight * (np.asarray(self.loss.curvature(margin)) + added_curvature)
        slope = -weight * np.asarray(self.loss.derivative(margin)) / self.temperature
        result = (curvature[:, None] * change)[:, :, None] * change[:, None, :]
        result -= (slope[:, None] * others)[:, :, None] * others[:, None, :]
        diagonal = np.arange(scores.shape[1])
        result[:, diagonal, diagonal] += slope[:, None] * others
        return np.asarray(result)

    def conjugate_in_scores(self, dual: ArrayLike, codes: ArrayLike) -> FloatArray:
        """Evaluate the convex conjugate of the loss of each row as a function of its scores.

        Parameters
        ----------
        dual : array_like of shape (n_rows, n_classes)
            Dual variables a; the conjugate is the supremum of a·f - φ(m(f)) over scores f.
        codes : array_like of int of shape (n_rows,)
            The class y of each row, from 0 to n_classes - 1.

        Returns
        -------
        ndarray of shape (n_rows,)
            The conjugate; infinite outside of its domain, up to a relative rounding error of 1e-12.

        Examples
        --------
        >>> from marginpursuit.losses import JointLoss, MarginLoss
        >>> loss = JointLoss(MarginLoss(rho="square", overconfidence=0.0))
        >>> loss.conjugate_in_scores([[1.0, -1.0], [1.0, -0.5]], [1, 1])
        array([-0.5,  inf])
        """
        dual, codes = _checked(dual, codes, name="dual")
        is_own = _is_class(np, dual, codes)
        beta = -dual[np.arange(len(dual)), codes]
        others = np.where(is_own, 0.0, dual)
        slack = 1e-12 * np.abs(dual).max(axis=1)
        is_feasible = np.all(others >= -slack[:, None], axis=1)
        is_feasible &= (np.abs(dual.sum(axis=1)) <= slack) & (beta >= -slack)
        is_feasible &= beta <= self.loss.influence_bound * (1.0 + 1e-12)
        size = np.clip(np.where(is_feasible, beta, 0.0), 0.0, self.loss.influence_bound)
        is_positive = (others > 0) & (size[:, None] > 0)
        ratios = np.divide(others, size[:, None], out=np.ones_like(others), where=is_positive)
        entropy = np.sum(others * np.log(ratios), axis=1)
        finite = self.loss.conjugate(size) - self.margin * size + self.temperature * entropy
        return np.where(is_feasible, finite, np.inf)

    def link(self, scores: Any) -> Any:
        """Return the class probabilities whose optimal scores are given; unchecked.

        Parameters
        ----------
        scores : array of shape (n_rows, n_classes)
            Scores f, of any array library.

        Returns
        -------
        array of shape (n_rows, n_classes)
            Probabilities, which sum to one in each row.

        Examples
        --------
        >>> import numpy as np
        >>> from marginpursuit.losses import JointLoss, MarginLoss
        >>> loss = JointLoss(MarginLoss(rho="square", overconfidence=0.0))
        >>> loss.link(np.array([[-0.25, 0.25]]))  # two classes: the link of the binary loss
        array([[0.25, 0.75]])
        """
        xp = array_functions(scores)
        highest = xp.max(scores, axis=1)[:, None]
        is_highest = _is_class(xp, scores, xp.argmax(scores, axis=1))
        # e_k and S - e_k, divided by the largest e; that of the highest score does not cancel.
        odds = xp.exp((scores - highest) / self.temperature)
        rest = xp.sum(xp.where(is_highest, xp.zeros_like(odds), odds), axis=1)[:, None]
        others = xp.where(is_highest, rest, 1.0 + rest - odds)
        with np.errstate(divide="ignore"):
            margin = scores - highest - self.temperature * xp.log(others)
        is_certain = margin >= self.margin
        below = xp.where(is_certain, xp.zeros_like(margin), margin)
        influence = self.loss.rho_function.influence((self.margin - below) / self.scale)
        is_any = xp.any(is_certain, axis=1)[:, None]
        result = xp.where(is_any, xp.astype(is_certain, odds.dtype), odds * others / influence)
        return result / xp.sum(result, axis=1)[:, None]


@lru_cache(maxsize=256)
def _slope_at_zero(joint: JointLoss, n_classes: int) -> float:
    """Return |φ'| where all scores are zero; equal losses recur in every fit."""
    return -float(joint.loss.derivative(joint.zero_margin(n_classes)))


def _is_class(xp: Any, scores: Any, codes: Any) -> Any:
    """Return whether each score is that of the class of its row, of shape (n_rows, n_classes)."""
    classes = xp.arange(scores.shape[1], dtype=codes.dtype, device=scores.device)
    return codes[:, None] == classes[None, :]


def _margins(scores: Any, codes: Any, temperature: float) -> tuple[Any, Any, Any]:
    """Return joint margins, whether each score is that of the row's class, and the softmax p.

    The largest other score is subtracted before the exponential, which then is at most one.
    """
    xp = array_functions(scores)
    is_own = _is_class(xp, scores, codes)
    others = xp.where(is_own, xp.full_like(scores, -np.inf), scores)
    top = xp.max(others, axis=1)
    odds = xp.exp((others - top[:, None]) / temperature)
    total = xp.sum(odds, axis=1)
    own = xp.sum(xp.where(is_own, scores, xp.zeros_like(scores)), axis=1)
    return own - top - temperature * xp.log(total), is_own, odds / total[:, None]


def _checked(
    scores: ArrayLike, codes: ArrayLike, name: str = "scores"
) -> tuple[FloatArray, NDArray[np.intp]]:
    values, classes = real(name, scores), np.asarray(codes)
    if values.ndim != 2 or values.shape[1] < 2 or classes.shape != values.shape[:1]:
        raise ValueError(
            f"{name} must have shape (n_rows, n_classes) with n_classes >= 2, and codes shape "
            f"(n_rows,); got {values.shape} and {classes.shape}"
        )
    is_integer = classes.dtype.kind in "iu"
    if not is_integer or np.any((classes < 0) | (classes >= values.shape[1])):
        raise ValueError(f"codes must be integers from 0 to {values.shape[1] - 1}; got {codes!r}")
    return values, classes.astype(np.intp)
