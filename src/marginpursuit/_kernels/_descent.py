"""Parameters and state of a stochastic gradient descent; the handles on rows take the steps."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from marginpursuit._validation import FloatArray
from marginpursuit.losses import Loss


@dataclass
class Descent:
    r"""A stochastic (sub)gradient descent: its parameters and its state.

    Step t = 0, 1, ... takes the rows i of a batch of k, with margins m = y (x·w + b), to

    .. math::

        w \leftarrow \Bigl(1 - \frac{\mathrm{decay}}{1 + t}\Bigr) w
        - \frac{\mathrm{rate}}{1 + t}\,\frac1k \sum_i \varphi'(m_i)\, y_i x_i

    and then to the nearest point of the ball ‖w‖ ≤ radius. The intercept b moves along its own
    derivative, and neither shrinks nor is projected, unless it is penalised: then it is treated as
    the coefficient of a column of ones.

    With `own` the matrix holds values of a kernel and w is an expansion Σ c φ(x') over its columns:
    `coef` are its coefficients c, and a step changes those of its rows, c[own[i]].
    """

    loss: Loss
    sign: FloatArray  # y of each row of the matrix
    rate: float
    decay: float
    coef: FloatArray  # w; changed in place
    intercept: float = 0.0  # b
    radius: float = np.inf
    batch: int = 1
    fit_intercept: bool = False
    penalise_intercept: bool = False
    t: int = 0  # steps taken so far
    total: FloatArray | None = None  # the sum of all w so far, if their mean is wanted
    total_intercept: float = 0.0
    own: NDArray[np.intp] | None = None  # the column that equals each row
    square: float = 0.0  # with `own`, ‖w‖²
    # Increasing numbers of steps, and w and b after each of them; with a total, their means.
    marks: NDArray[np.intp] = field(default_factory=lambda: np.empty(0, np.intp))
    path: FloatArray = field(default_factory=lambda: np.empty((0, 0)))
    path_intercept: FloatArray = field(default_factory=lambda: np.empty(0))

    def point(self) -> tuple[FloatArray, float]:
        """Return w and b now; with a total, their means."""
        if self.total is None:
            return self.coef.copy(), self.intercept
        return self.total / self.t, self.total_intercept / self.t
