"""The figures and claims of the paper, one file each.

`reproduce` runs them: fits in several processes, kept as they finish, with pictures, tables and a
verdict on each claim. To add an experiment is to add a file with an `EXPERIMENT`, and a line in
`reproduction.py`. `compare` cross-validates methods, `runs` keeps what a report is made from.
"""

from marginpursuit.experiments._fits import Fit
from marginpursuit.experiments._results import FULL, QUICK, Results, Setting, Table, Verdict
from marginpursuit.experiments.reproduction import EXPERIMENTS, Reproduction, reproduce

__all__ = [
    "EXPERIMENTS",
    "FULL",
    "QUICK",
    "Fit",
    "Reproduction",
    "Results",
    "Setting",
    "Table",
    "Verdict",
    "reproduce",
]
