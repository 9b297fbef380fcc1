"""The figures and claims of the paper, one file each.

A figure file offers `draw()`, which returns a Matplotlib figure made with public names of the
library alone. ``python -m marginpursuit.experiments FOLDER`` draws them all.
"""
