"""The order of the gallery: from the first fit to the theory."""

EXAMPLES = [
    "first_fit",
    "leverage_outliers",
    "flipped_labels",
    "classifier_comparison",
    "calibration_comparison",
    "several_classes",
    "imbalanced",
    "text",
    "kernels",
    "search",
    "overconfidence",
    "scale_path",
    "losses",
    "rhos",
    "probability_link",
    "partial_fit",
    "blocks",
    "convergence",
    "robust_boosting",
    "robust_head",
    "location",
    "risk_calibration",
]


def place(name: str) -> int:
    """Return the place of an example in the gallery; Sphinx-Gallery sorts by it."""
    return EXAMPLES.index(name.removeprefix("plot_").removesuffix(".py"))
