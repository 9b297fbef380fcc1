"""Hypothesis strategies that several test files share."""

from hypothesis import strategies as st

#: Every float but NaN: subnormal, huge and infinite ones included.
reals = st.floats(allow_nan=False)

#: Positive numbers over the range in which products of two neither vanish nor overflow for sure.
positives = st.floats(1e-300, 1e300)

#: Probabilities and weights in [0, 1], the ends included; no subnormal ones.
unit = st.floats(0.0, 1.0, allow_subnormal=False)
