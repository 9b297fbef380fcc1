"""Choosing hyper-parameters by cross-validation.

`MarginPursuitClassifierCV` checks its input once, splits it and hands it to the search:

- `search` runs the rungs of successive halving and chooses one candidate;
- `successive_halving` draws the subsamples of a rung and eliminates candidates;
- `fold_fits` fits candidates to folds, with the data prepared by `fold_groups`;
- `scoring` scores held-out rows, and `link` turns their scores into probabilities;
- `candidates` has the values that these modules exchange, and `policy` every threshold.
"""

from marginpursuit.selection.margin_pursuit_cv import MarginPursuitClassifierCV

__all__ = ["MarginPursuitClassifierCV"]
