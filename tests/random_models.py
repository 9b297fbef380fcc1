"""Random fitted linear classifiers, with every kind of link, for tests of exports."""

from itertools import product

import numpy as np

from marginpursuit import MarginPursuitClassifier
from marginpursuit.classifiers._label_links import LabelLinks
from marginpursuit.classifiers._link import FittedLink
from marginpursuit.losses import RHOS

KINDS = ["fitted", "exact", "none"]
PROBLEMS = ["binary", "ovr", "joint", "labels"]


def random_link(rng, margin):
    """A link as a fit returns it: positive slopes, and a threshold within the margins."""
    threshold = float(rng.choice([0.0, rng.uniform(-0.9, 0.9)]) * margin)
    smoothing = float(rng.choice([0.0, rng.uniform(0, 0.1)]))
    return FittedLink(margin, 10 ** rng.uniform(-2, 2, size=4) / margin, threshold, smoothing)


def random_model(rng, kind, problem, rho="catoni", classes=None, n_features=4):
    """A classifier with random coefficients and link, without a fit."""
    n_classes = 2 if problem == "binary" else int(rng.integers(3, 6))
    margin, scale = (float(10 ** rng.uniform(-1, 1)) for _ in range(2))
    probability = {"fitted": "held_out", "exact": "exact", "none": None}[kind]
    model = MarginPursuitClassifier(margin=margin, scale=scale, rho=rho, probability=probability)
    n_problems = 1 if problem == "binary" else n_classes
    model.coef_ = margin * rng.standard_normal((n_problems, n_features))
    model.intercept_ = margin * rng.standard_normal(n_problems)
    model.classes_ = np.arange(n_classes) if classes is None else np.asarray(classes[:n_classes])
    model.n_features_in_ = n_features
    model.scale_ = scale
    model.multi_class_ = "joint" if problem == "joint" else "ovr"
    model.multilabel_ = problem == "labels"
    if kind == "fitted":
        model.link_ = random_link(rng, margin)
        if problem == "labels":
            slopes = 10 ** rng.uniform(-2, 2, size=n_problems) / margin
            model.link_ = LabelLinks(slopes, np.zeros(n_problems), float(rng.uniform(-2, 0)))
    return model


def random_rows(rng, model, n_rows=50):
    """Rows whose scores lie on both sides of the knots; the last ones far away."""
    rows = rng.standard_normal((n_rows, model.n_features_in_))
    rows[-4:] *= 10.0 ** np.array([1, 2, 4, 6])[:, np.newaxis]
    return rows


def random_models(seed):
    """A model of each kind of link and problem; those with an exact link with every ρ."""
    rng = np.random.default_rng(seed)
    for kind, problem in product(KINDS, PROBLEMS):
        for rho in RHOS if kind == "exact" else ["catoni"]:
            yield random_model(rng, kind, problem, rho)
