r"""Centring and scaling of columns, as algebra on coefficients.

The data are never copied or changed. A model for standardised rows z = (x - mean) / deviation is
translated to one for the rows x as they are, and gradients are translated back.
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from marginpursuit._validation import FloatArray

#: Coefficients (n_columns, n_tasks) and intercepts (n_tasks,).
Linear: TypeAlias = tuple[FloatArray, FloatArray]


@dataclass(frozen=True, slots=True, eq=False)
class Standardisation:
    """Weighted mean and inverse standard deviation of each column.

    Without centring the mean is zero and the deviation is the root mean square. A constant column
    has an inverse deviation of zero: its standardised values and its coefficient are zero.
    """

    mean: FloatArray  # (n_columns,)
    inverse_deviation: FloatArray  # (n_columns,)

    @classmethod
    def identity(cls, n_columns: int) -> "Standardisation":
        """Return the standardisation that leaves columns as they are."""
        return cls(np.zeros(n_columns), np.ones(n_columns))

    @property
    def varies(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Which columns are not constant."""
        return self.inverse_deviation > 0

    @property
    def deviation(self) -> FloatArray:
        """The standard deviation of each column."""
        inverse = self.inverse_deviation
        return np.divide(1.0, inverse, out=np.zeros_like(inverse), where=self.varies)

    def to_data(self, linear: Linear) -> Linear:
        """Translate a model for standardised rows to one for the rows as they are."""
        coef, intercept = linear
        raw_coef = (coef.T * self.inverse_deviation).T
        return raw_coef, intercept - self.mean @ raw_coef

    def from_data(self, linear: Linear) -> Linear:
        """Invert `to_data`; coefficients of constant columns become zero."""
        coef, intercept = linear
        return (coef.T * self.deviation).T, intercept + self.mean @ coef

    def gradient(self, raw: FloatArray, intercept: FloatArray) -> FloatArray:
        """Translate gradients (n_columns, n_tasks) in raw coefficients by the chain rule.

        `intercept` is the gradient in the intercepts, of shape (n_tasks,).
        """
        return ((raw - np.outer(self.mean, intercept)).T * self.inverse_deviation).T

    def second_moment(self, raw: FloatArray) -> FloatArray:
        """Scale second moments about the mean, of shape (n_columns, n_columns)."""
        return np.asarray(raw * self.inverse_deviation * self.inverse_deviation[:, np.newaxis])
