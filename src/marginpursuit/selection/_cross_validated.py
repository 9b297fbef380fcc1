"""A classifier that is judged on folds: splitters, scorers and metadata of scikit-learn."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn import get_config
from sklearn.metrics import check_scoring
from sklearn.model_selection import check_cv
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.metaestimators import available_if

from marginpursuit._namespaces import is_elsewhere, is_foreign, to_numpy
from marginpursuit.blocks import is_dask
from marginpursuit.classifiers._base import LinearClassifier, TrainingData
from marginpursuit.selection._scores import Scored, takes_weights
from marginpursuit.selection._settings import Fold


def _was_refitted(estimator: Any) -> bool:
    if not estimator.refit:
        raise AttributeError("there is no fit to all rows to predict with: refit=False was given")
    return True


class CrossValidatedClassifier(LinearClassifier):
    """A classifier with the parameters `cv`, `scoring` and `refit`."""

    cv: Any
    scoring: Any
    refit: bool
    scorer_: Any
    n_splits_: int

    @available_if(_was_refitted)  # type: ignore[untyped-decorator]
    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Return what `scoring` says of the predictions: by default the share that is correct.

        Parameters
        ----------
        X : {array-like, sparse matrix, Blocks, Dask array} of shape (n_samples, n_features)
            Samples.
        y : {array-like, Dask array} of shape (n_samples,)
            Their classes.
        sample_weight : array-like of shape (n_samples,), optional
            Weights of the samples.

        Returns
        -------
        float
            The score.
        """
        if self.scoring is None:
            return float(super().score(X, y, sample_weight))
        weights = {} if sample_weight is None else {"sample_weight": to_numpy(sample_weight)}
        true = to_numpy(y) if is_foreign(y) else y
        if not is_elsewhere(X):
            return float(self.scorer_(self, X, true, **weights))
        scores = to_numpy(self.decision_function(X))  # scorers speak NumPy
        answers = Scored(
            self.classes_,
            scores.reshape(len(scores), -1),
            lambda scores: to_numpy(self.predict_proba(X)),
        )
        return float(self.scorer_(answers, X, true, **weights))

    def get_metadata_routing(self) -> MetadataRouter:
        """Say who may ask for metadata: the splitter and the scorer.

        Returns
        -------
        MetadataRouter
            The routing.
        """
        router = MetadataRouter(owner=type(self).__name__).add_self_request(self)
        to_split = MethodMapping().add(caller="fit", callee="split")
        router.add(splitter=check_cv(self.cv), method_mapping=to_split)
        to_score = MethodMapping().add(caller="fit", callee="score")
        if self.scoring is not None:
            router.add(scorer=self._scorer, method_mapping=to_score)
        return router

    @property
    def _scorer(self) -> Any:
        return None if self.scoring is None else check_scoring(Scored(), self.scoring)

    def _route(
        self, sample_weight: ArrayLike | None, params: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return what goes to the splitter and what to the scorer."""
        weights = {} if sample_weight is None else {"sample_weight": to_numpy(sample_weight)}
        given = {
            name: to_numpy(value) if is_foreign(value) or is_dask(value) else value
            for name, value in params.items()
            if value is not None
        }
        if get_config()["enable_metadata_routing"]:
            routed = process_routing(self, "fit", **given, **weights)
            # The share of correct predictions has no scorer that could be asked.
            return routed.splitter.split, weights if self.scoring is None else routed.scorer.score
        strange = sorted(set(given) - {"groups"})
        if strange:
            raise TypeError(
                f"fit got {strange}; without metadata routing it takes X, y, sample_weight and "
                "groups"
            )
        return given, weights if takes_weights(self.scorer_) else {}

    def _split(
        self, data: TrainingData, params: dict[str, Any], to_scorer: dict[str, Any]
    ) -> list[Fold]:
        splitter, y = check_cv(self.cv, data.labels.codes, classifier=True), data.labels.codes
        is_here = isinstance(data.matrix, np.ndarray) or sparse.issparse(data.matrix)
        rows = data.matrix if is_here else np.broadcast_to(0.0, tuple(data.matrix.shape))
        folds = [
            Fold(_rising(train), _rising(test)) for train, test in splitter.split(rows, y, **params)
        ]
        weights = to_scorer.get("sample_weight")
        for k, fold in enumerate(folds):
            counts = np.bincount(y[fold.train], data.weights[fold.train] > 0)
            n_seen = np.count_nonzero(counts)
            if n_seen < 2 or len(fold.test) == 0:
                raise ValueError(
                    f"every fold needs training samples of at least 2 classes and a sample to test;"
                    f" fold {k} has {n_seen} and {len(fold.test)}"
                )
            if weights is not None and not np.any(np.asarray(weights)[fold.test]):
                raise ValueError(
                    f"every fold needs a sample to test with a positive weight; fold {k} has none"
                )
        self.n_splits_ = len(folds)
        return folds


def _rising(places: Any) -> NDArray[np.intp]:
    places = np.asarray(places)
    if places.dtype == bool:
        return np.flatnonzero(places)
    return places if np.all(places[1:] >= places[:-1]) else np.sort(places)
