"""What a report shows of the experiments, and a comparison on data that ships with scikit-learn."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from marginpursuit import datasets
from marginpursuit.experiments.compare import SetResult, compare, methods
from marginpursuit.experiments.reproduction import EXPERIMENTS, Reproduction
from marginpursuit.experiments.runs import Figure, Listing, Run

__all__ = ["NAMES", "compare_bundled", "count_fits", "gather"]

#: Figures that go by another name than their experiment, which draws both.
_TOGETHER = {"figure3": "figures3-4", "figure4": "figures3-4"}

#: The experiment by each of the names that it goes by.
NAMES = {**{name: name for name in EXPERIMENTS}, **_TOGETHER}

_BUNDLED = ("breast_cancer", "digits")
_FOLDS, _QUICK_FOLDS = 10, 3


def compare_bundled(
    *, quick: bool = False, reached: Callable[[str], None] | None = None
) -> list[SetResult]:
    """Compare all methods on the data sets that ship with scikit-learn.

    Parameters
    ----------
    quick : bool, default=False
        Whether 3 folds will do instead of 10.
    reached : callable, optional
        Called with the name of the method after each fold, `count_fits` times.

    Returns
    -------
    list of SetResult
        The results, one a data set.
    """
    return [
        compare(
            data.X,
            data.y,
            name=data.name,
            description=data.description,
            sha256=datasets.REGISTRY[data.name].content_sha256 or "",
            n_folds=_QUICK_FOLDS if quick else _FOLDS,
            reached=reached,
        )
        for data in map(datasets.load, _BUNDLED)
    ]


def count_fits(*, quick: bool = False) -> int:
    """Return how many fits `compare_bundled` makes.

    Examples
    --------
    >>> from marginpursuit.experiments.overview import count_fits
    >>> count_fits(quick=True) < count_fits()
    True
    """
    return len(_BUNDLED) * len(methods()) * (_QUICK_FOLDS if quick else _FOLDS)


def gather(found: Reproduction, sets: Sequence[SetResult] = ()) -> Run:
    """Gather what `reproduce` found, and comparisons, into a run that a report is made from.

    Parameters
    ----------
    found : Reproduction
        Figures, verdicts and tables; its folder must still hold the pictures.
    sets : sequence of SetResult, optional
        Comparisons.

    Returns
    -------
    Run
        All of it.

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
    notes = [f"Not run: {name}. {why}" for name, why in found.not_run.items()]
    notes += [f"Failed: {fit}: {why}" for fit, why in found.results.failures.items()]
    claims = tuple(
        (
            each.claim,
            each.reading,
            each.criterion,
            each.verdict,
            "; ".join(f"{data}: {numbers}" for data, numbers in each.evidence.items()),
        )
        for each in found.verdicts
    )
    header = ("claim", "reading", "true if", "verdict", "evidence")
    tables = (
        Listing(table.title, table.note, tuple(table.columns), tuple(map(tuple, table.rows)))
        for table in found.tables
    )
    figures = (
        Figure(
            name,
            EXPERIMENTS[NAMES[name.partition("-")[0]]].title,  # of figure3-digits-standard, say
            (found.folder / f"{name}.svg").read_text("utf-8"),
        )
        for name in found.figures
    )
    run = Run.now(
        "Classification using margin pursuit",
        sets=tuple(sets),
        listings=(Listing("Claims", " ".join(notes), header, claims), *tables),
        figures=tuple(figures),
    )
    return replace(run, versions={**run.versions, "code": found.code})
