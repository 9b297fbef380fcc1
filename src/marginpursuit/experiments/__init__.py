"""The figures and claims of the paper, one file each.

`reproduce` runs them: it fits in several processes, stores every finished fit, draws figures,
writes tables and gives a verdict on each claim. A new experiment is a file with a subclass of
`Experiment` and a line in `reproduction.py`. `compare` cross-validates methods on a data set;
`runs` stores the content of a report.
"""

from marginpursuit.experiments._fits import Fit
from marginpursuit.experiments._results import (
    FULL,
    QUICK,
    Experiment,
    Results,
    Setting,
    Table,
    Verdict,
)
from marginpursuit.experiments.reproduction import EXPERIMENTS, Reproduction, reproduce

__all__ = [
    "EXPERIMENTS",
    "FULL",
    "QUICK",
    "Experiment",
    "Fit",
    "Reproduction",
    "Results",
    "Setting",
    "Table",
    "Verdict",
    "reproduce",
]
