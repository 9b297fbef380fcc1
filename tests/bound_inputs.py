"""Valid arguments of the bounds, with changes."""


def algorithm_inputs(**changes):
    inputs = {
        "n": 10**6,
        "dimension": 5,
        "delta": 0.05,
        "margin": 1.0,
        "scale": 2.0,
        "second_moment": 5.0,
        "strong_convexity": 0.8,
        "step": 0.3,
        "iterations": 50,
        "initial_distance": 1.5,
        "diameter": 4.0,
        "sub_gaussian": 0.7,
    }
    return inputs | changes


def location_inputs(**changes):
    return {"variance": 2.0, "n": 100, "delta": 0.05} | changes


def complexity_inputs(**changes):
    return {"n": 100, "delta": 0.05, "eta_2": 1.0, "eta_inf": 2.0} | changes
