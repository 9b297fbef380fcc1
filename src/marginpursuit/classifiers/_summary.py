"""A fitted classifier in words, for people and notebooks."""

from html import escape
from typing import Any

import numpy as np

__all__ = ["SummaryMixin"]


class SummaryMixin:
    """Adds `summary`, and shows it above the diagram of scikit-learn in a notebook."""

    def summary(self) -> str:
        """Describe the fit in one paragraph.

        Returns
        -------
        str
            Classes and columns, the cross-validated score and the chosen hyper-parameters of a
            search, or the scale of a fit, and the passes over the data.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from marginpursuit import MarginPursuitClassifierCV
        >>> model = MarginPursuitClassifierCV()
        >>> model.summary()
        'MarginPursuitClassifierCV, not fitted.'
        >>> print(model.fit(*load_iris(return_X_y=True)).summary())
        MarginPursuitClassifierCV, fitted to 4 columns and 3 classes. Cross-validated ...
        """
        name = type(self).__name__
        if not hasattr(self, "classes_"):
            return f"{name}, not fitted."
        columns = getattr(self, "n_features_in_", None)
        size = "" if columns is None else f"{columns:,} columns and "
        parts = [f"{name}, fitted to {size}{len(self.classes_)} classes."]
        score = getattr(self, "best_score_", None)
        if score is not None:
            scoring = getattr(self, "scoring", None)
            what = scoring if isinstance(scoring, str) else "score" if scoring else "accuracy"
            parts.append(f"Cross-validated {what} {score:.4g}.")
        chosen = self._chosen()
        if chosen:
            listed = ", ".join(f"{key} {value:.4g}" for key, value in chosen.items())
            parts.append(f"Chosen: {listed}." if score is not None else f"Fitted: {listed}.")
        passes = getattr(self, "n_passes_", None)
        if passes is not None:
            parts.append(f"{int(np.max(passes)):,} passes over the data.")
        return " ".join(parts)

    def _chosen(self) -> dict[str, float]:
        """Return the hyper-parameters that the fit has chosen, or its scale and penalty."""
        best = getattr(self, "best_params_", None)
        if best is not None:
            return {key: float(value) for key, value in best.items()}
        found = {name: getattr(self, f"{name}_", None) for name in ("scale", "alpha")}
        return {
            name: float(np.max(value))
            for name, value in found.items()
            if value is not None and np.asarray(value).dtype.kind in "iuf"
        }

    def _repr_html_inner(self) -> Any:
        return self._with_summary(super()._repr_html_inner())  # type: ignore[misc]

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        bundle: dict[str, Any] = super()._repr_mimebundle_(**kwargs)  # type: ignore[misc]
        if "text/html" in bundle:
            bundle["text/html"] = self._with_summary(bundle["text/html"])
        return bundle

    def _with_summary(self, diagram: str) -> str:
        return f"<p>{escape(self.summary())}</p>{diagram}"
