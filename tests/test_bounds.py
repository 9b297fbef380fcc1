"""The results of the bounds: frozen, with named terms."""

from dataclasses import FrozenInstanceError, fields, replace

import numpy as np
import pytest
from bound_inputs import algorithm_inputs, complexity_inputs, location_inputs

from marginpursuit import bounds
from marginpursuit.bounds import (
    algorithm_risk_bound,
    catoni_risk_bound,
    leave_one_out_bound,
    linear_complexity,
    location_bias_bound,
    location_bound,
    location_stability_bound,
    margin_bound,
    projection_risk_bound,
)

RESULTS = [
    algorithm_risk_bound(**algorithm_inputs()),
    location_bound(**location_inputs()),
    location_bias_bound(2.0, variance=1.0, absolute_third=2.0),
    location_stability_bound(100, 1.0),
    margin_bound([0.5, 1.0], 1.0),
    projection_risk_bound(np.linspace(-0.1, 1.0, 200), 0.1),
    leave_one_out_bound([0.0, 0.5], [1.0, 1.0], 1.0),
    catoni_risk_bound(**complexity_inputs()),
    linear_complexity(3, 1.0),
]


@pytest.mark.parametrize("result", RESULTS, ids=lambda result: type(result).__name__)
def test_a_result_is_frozen_and_its_repr_has_one_line_per_term(result):
    names = [field.name for field in fields(result)]
    lines = repr(result).splitlines()
    assert lines[0] == type(result).__name__
    assert [line.split()[0] for line in lines[1:]] == names
    assert all(len(line.split()) == 2 for line in lines[1:])
    assert all(len(line.split()[1]) <= len("-1.23457e-100") for line in lines[1:])
    assert str(result) == repr(result)
    assert result == replace(result)
    with pytest.raises(FrozenInstanceError):
        setattr(result, names[0], 1.0)


def test_public_names_are_sorted_and_complete():
    assert bounds.__all__ == sorted(bounds.__all__)
    assert {type(result).__name__ for result in RESULTS} <= set(bounds.__all__)
