"""The content of a report on the paper: experiments, and a comparison on bundled data."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from marginpursuit import datasets
from marginpursuit.experiments.compare import compare, methods
from marginpursuit.experiments.method_results import SetResult
from marginpursuit.experiments.reproduction import EXPERIMENTS, Reproduction
from marginpursuit.experiments.runs import Figure, Run

__all__ = ["NAMES", "compare_bundled", "count_fits", "gather"]

#: From the name of a figure or experiment to the name of the experiment.
NAMES = {
    **{name: name for name in EXPERIMENTS},
    "figure3": "figures3-4",
    "figure4": "figures3-4",
}


def compare_bundled(
    *, quick: bool = False, progress: Callable[[str], None] | None = None
) -> list[SetResult]:
    """Compare all methods on two data sets included with scikit-learn.

    Parameters
    ----------
    quick : bool, default=False
        Whether to use 3 folds instead of 10.
    progress : callable, optional
        Called with the name of the method after each fold, `count_fits` times.

    Returns
    -------
    list of SetResult
        The results, one per data set.
    """
    return [
        compare(
            data.X,
            data.y,
            name=data.name,
            description=data.description,
            sha256=datasets.REGISTRY[data.name].content_sha256 or "",
            n_folds=_n_folds(quick),
            baseline="LogisticRegression",
            progress=progress,
        )
        for data in map(datasets.load, _bundled())
    ]


def count_fits(*, quick: bool = False) -> int:
    """Return the number of fits of `compare_bundled`.

    Examples
    --------
    >>> from marginpursuit.experiments.overview import count_fits
    >>> count_fits(quick=True) < count_fits()
    True
    """
    return len(_bundled()) * len(methods()) * _n_folds(quick)


def _bundled() -> tuple[str, ...]:
    return ("breast_cancer", "digits")  # as in `experiments.QUICK`


def _n_folds(quick: bool) -> int:
    return 3 if quick else 10


def gather(found: Reproduction, sets: Sequence[SetResult] = ()) -> Run:
    """Combine a reproduction and comparisons into a run.

    Parameters
    ----------
    found : Reproduction
        Figures, verdicts and tables; its folder must still hold the figures.
    sets : sequence of SetResult, optional
        Comparisons.

    Returns
    -------
    Run
        The run.

    Examples
    --------
    >>> import tempfile
    >>> from marginpursuit.experiments import reproduce
    >>> from marginpursuit.experiments.overview import gather
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = gather(reproduce(["figure1"], quick=True, out=folder))
    >>> [figure.title for figure in run.figures], run.listings[0].title
    (['figure1'], 'Claims')
    """
    figures = (
        Figure(
            name,
            # "figure3-digits-standard" belongs to the experiment of figure3.
            EXPERIMENTS[NAMES[name.partition("-")[0]]].title,
            (found.folder / f"{name}.svg").read_text("utf-8"),
        )
        for name in found.figures
    )
    run = Run.now(
        "Classification using margin pursuit",
        sets=tuple(sets),
        listings=(found.claims(), *found.tables),
        figures=tuple(figures),
    )
    return replace(run, versions={**run.versions, "code": found.code})
