"""The search with a kernel: the factor γ of the kernel and the other hyper-parameters.

A kernel is a matrix of features (`classifiers/_kernel_map.py`), which all candidates and folds with
the same γ share. The search has two steps, and the refit has `n_components` landmarks:

1. all candidates at every γ of the grid, with few landmarks and a loose tolerance;
2. the best candidates of the best values of γ, with more landmarks, and for each that with the next
   smaller penalty: fewer landmarks suit larger penalties. Several classes have fewer landmarks and
   one γ in this step.

With one class against one the kernel matrix takes the place of the features (`pair_fits.py`), and
all values of γ are candidates of one search with successive halving.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import euclidean_distances

from marginpursuit.classifiers import MarginPursuitClassifier
from marginpursuit.classifiers._shared import (
    RowScores,
    TrainingData,
    fits_pairs,
    range_error,
    systematic_sample,
)
from marginpursuit.design import loaded, take_rows
from marginpursuit.selection.candidates import Candidate
from marginpursuit.selection.pair_fits import KernelCandidate, PairKernels
from marginpursuit.selection.policy import SelectionPolicy
from marginpursuit.selection.search import SearchResult
from marginpursuit.selection.successive_halving import with_smaller_penalties

#: Evaluates candidates on data with kernel features as matrix, with limits on the iterations of
#: their fits; or on the matrices of pairs of classes, by the keyword `pairs`.
Evaluate = Callable[..., SearchResult]

Params = dict[str, Any]


class KernelResult(NamedTuple):
    """The parameters of all evaluated candidates, and their results."""

    params: list[Params]
    result: SearchResult  # of all steps; `best` is an index into `params`
    #: (n_candidates,), landmarks with which each was evaluated; None for one class against one.
    n_components: NDArray[np.intp] | None
    start: RowScores | None = None  # scores of the chosen fold fits, at which the refit starts


def search_with_kernel(
    model: MarginPursuitClassifier,
    data: TrainingData,
    grid: list[Params],
    gammas: Iterable[float] | None,
    evaluate: Evaluate,
    policy: SelectionPolicy,
) -> KernelResult:
    """Choose γ, if the kernel has one, and a candidate of the grid; None is the default for γ."""
    values: list[float] = []
    if isinstance(model.kernel, str) and model.kernel != "precomputed":
        values = default_gammas(data, model.kernel, policy) if gammas is None else list(gammas)
    if fits_pairs(model, data):
        return search_pairs(model, data, grid, values, evaluate)
    return KernelSearch(model, data, grid, evaluate, policy).run(values)


@dataclass(frozen=True)
class KernelSearch:
    """A search over candidates with kernel features."""

    model: MarginPursuitClassifier  # has the kernel; `gamma` and `n_components` are set here
    data: TrainingData
    grid: list[Params]  # the candidates without γ, as the user gave them
    evaluate: Evaluate
    policy: SelectionPolicy

    def run(self, gammas: list[float]) -> KernelResult:
        """Choose γ, if the kernel has one, and a candidate."""
        few, more = self._sizes()
        grids = [[p | {"gamma": g} for p in self.grid] for g in gammas] or [self.grid]
        if len(grids) == 1 and (few == more or len(self.grid) == 1):
            return self._step(grids[0], more, is_last=True)
        steps = sorted((self._step(grid, few) for grid in grids), key=_best_mean, reverse=True)
        is_binary = len(self.data.labels.positive_classes) == 1
        policy = self.policy
        n_final = policy.max_final_gammas if is_binary else policy.max_final_gammas_of_several
        pairs = [self._continued(step, more) for step in steps[:n_final]]
        lasts = sorted((last for _, last in pairs), key=_best_mean)
        return _joined([*steps[n_final:], *(rest for rest, _ in pairs), *lasts])

    def _continued(
        self, step: KernelResult, n_components: int
    ) -> tuple[KernelResult, KernelResult]:
        """Evaluate the best candidates of a step with more landmarks; return also the others."""
        order = np.argsort(-step.result.scores.mean(axis=1), kind="stable")
        best = order[: self.policy.max_final_candidates]
        kept = with_smaller_penalties(_candidates(step.params), best)
        others = np.setdiff1d(np.arange(len(step.params)), kept)
        last = self._step([step.params[k] for k in kept], n_components, is_last=True)
        return _rows(step, others), last

    def _sizes(self) -> tuple[int, int]:
        """Return the landmarks of the first steps and of the last."""
        policy, n_problems = self.policy, len(self.data.labels.positive_classes)
        limit = self.model.n_components or int(self.data.matrix.shape[0])
        more = min(policy.search_components, policy.max_search_coefficients // n_problems)
        few = policy.gamma_components
        return min(few, limit), min(max(few, more), limit)

    def _step(
        self, params: list[Params], n_components: int, *, is_last: bool = False
    ) -> KernelResult:
        """Evaluate candidates with the same γ."""
        model = replace_parameters(self.model, params[0].get("gamma"), n_components=n_components)
        mapped, _ = model._mapped(self.data)
        candidates = _candidates(params)
        sizes = np.full(len(params), n_components, dtype=np.intp)
        policy = self.policy
        limits = policy.kernel_last_stopping if is_last else policy.kernel_first_stopping
        result = self.evaluate(mapped, candidates, limits)
        start = None
        if is_last and result.start is not None and isinstance(mapped.matrix, np.ndarray):
            coef, intercept = result.start
            start = RowScores(mapped.matrix @ coef, intercept)
        return KernelResult(params, result, sizes, start)


def search_pairs(
    model: MarginPursuitClassifier,
    data: TrainingData,
    grid: list[Params],
    gammas: list[float],
    evaluate: Evaluate,
) -> KernelResult:
    """Choose γ, if the kernel has one, and a candidate, with one class against one.

    All values of γ are candidates of one search.
    """
    values: list[float | None] = [*gammas] or [None]
    pairs = PairKernels.of([(gamma, replace_parameters(model, gamma)) for gamma in values], data)
    params = [p | ({} if g is None else {"gamma": g}) for g in values for p in grid]
    candidates = [KernelCandidate(*candidate, g) for g in values for candidate in _candidates(grid)]
    try:
        return KernelResult(params, evaluate(pairs.data, candidates, pairs=pairs), None)
    except FloatingPointError as error:
        raise model._indefinite(error) from error


def replace_parameters(
    model: MarginPursuitClassifier, gamma: float | None, **changes: Any
) -> MarginPursuitClassifier:
    """Return an unfitted copy with another value of γ, if there is one, and other changes."""
    parameters = changes if gamma is None else changes | {"gamma": gamma}
    return MarginPursuitClassifier(**(model.get_params() | parameters))


def _candidates(params: list[Params]) -> list[Candidate]:
    return [Candidate(*(float(p[name]) for name in Candidate._fields)) for p in params]


def _best_mean(step: KernelResult) -> float:
    """Return the mean score of the best candidate; -inf if it is NaN, which ranks last."""
    mean = float(step.result.scores[step.result.best].mean())
    return -np.inf if np.isnan(mean) else mean


def _rows(step: KernelResult, rows: NDArray[np.intp]) -> KernelResult:
    """Return some candidates of a step, of which none is the best."""
    result = replace(
        step.result,
        scores=step.result.scores[rows],
        thresholds=step.result.thresholds[rows],
        resources=step.result.resources[rows],
    )
    assert step.n_components is not None
    return KernelResult([step.params[k] for k in rows], result, step.n_components[rows])


def _joined(steps: list[KernelResult]) -> KernelResult:
    """Join the candidates of all steps; the last step decides."""
    results, last = [step.result for step in steps], steps[-1].result
    params = [params for step in steps for params in step.params]
    joined = replace(
        last,
        scores=np.concatenate([result.scores for result in results]),
        thresholds=np.concatenate([result.thresholds for result in results]),
        resources=np.concatenate([result.resources for result in results]),
        best=len(params) - len(steps[-1].params) + last.best,
        n_passes=sum(result.n_passes for result in results),
    )
    sizes = np.concatenate([step.n_components for step in steps if step.n_components is not None])
    return KernelResult(params, joined, sizes, steps[-1].start)


def default_gammas(
    data: TrainingData, kernel: Any, policy: SelectionPolicy, n_rows: int = 500
) -> list[float]:
    """Return the default grid of γ, around a value that outliers do not change.

    It is 2/m for "rbf", with m the median of the squared distances between rows, and 1/m for other
    kernels, with m the median of the squared norms. For independent columns of unit variance both
    are 1/d, which is "scale".
    """
    sample = systematic_sample(data, n_rows)
    rows = loaded(take_rows(data.matrix, sample)).astype(np.float64)
    is_rbf = isinstance(kernel, str) and kernel == "rbf"
    if is_rbf:
        if isinstance(rows, np.ndarray):
            rows -= rows.mean(axis=0)  # smaller rounding errors of the distances
        squares = euclidean_distances(rows, squared=True)[np.triu_indices(len(sample), 1)]
    else:
        squares = np.asarray(euclidean_distances(rows, rows[:1] * 0, squared=True)).ravel()
    positive = squares[squares > 0]
    if len(sample) > 1 and len(positive) == 0:
        raise range_error("the squares of the distances between rows are zero")
    unit = (2.0 if is_rbf else 1.0) / float(np.median(positive)) if len(positive) else 1.0
    return [factor * unit for factor in policy.gamma_factors]
