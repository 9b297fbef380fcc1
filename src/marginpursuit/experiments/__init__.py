"""The figures and claims of the paper, one file each.

`reproduce` runs them: it fits in several processes, stores every finished fit, draws figures,
writes tables and gives a verdict on each claim. A new experiment is a file with a subclass of
`Experiment` and a line in `reproduction.py`. `compare` cross-validates methods on a data set;
`runs` stores the content of a report.
"""

# Names with "as" are for new experiments and their tests; `__all__` has the public ones.
from marginpursuit.experiments._fits import Fit as Fit
from marginpursuit.experiments._results import FULL, QUICK, Setting, Verdict
from marginpursuit.experiments._results import Experiment as Experiment
from marginpursuit.experiments._results import Results as Results
from marginpursuit.experiments._results import Table as Table
from marginpursuit.experiments.reproduction import EXPERIMENTS, Reproduction, reproduce

__all__ = [
    "EXPERIMENTS",
    "FULL",
    "QUICK",
    "Reproduction",
    "Setting",
    "Verdict",
    "reproduce",
]
