"""Choosing hyper-parameters by cross-validation.

`MarginPursuitClassifierCV` checks its input once, splits it (`_cross_validated`) and passes it to
the search:

- `search` runs the rungs of successive halving and chooses one candidate;
- `successive_halving` draws the subsamples of a rung and eliminates candidates;
- `fold_fits` fits candidates to folds, with the data prepared by `fold_data`;
- `kernel_search` chooses the factor γ of a kernel, and `pair_fits` fits one class against one;
- `scoring` scores held-out rows, with the `metrics` of scikit-learn computed faster;
- `candidates` has the values that these modules exchange, and `policy` every threshold.
"""

from marginpursuit.selection.margin_pursuit_cv import MarginPursuitClassifierCV

__all__ = ["MarginPursuitClassifierCV"]
