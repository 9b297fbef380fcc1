"""
A robust mean with a confidence interval
========================================

Catoni's estimate of location, which the loss is made of: between median and mean, depending on the
scale. Here the mean, the median and Catoni's estimate of 200 draws from a skewed distribution with
heavy tails.
"""

import matplotlib.pyplot as plt
import numpy as np

from marginpursuit.location import catoni_interval, catoni_location, confidence_scale

rng = np.random.default_rng(0)
n, repeats = 200, 2000
samples = rng.pareto(2.5, size=(repeats, n))
truth = 1 / 1.5
variance = 2.5 / (1.5**2 * 0.5)  # of this distribution; an upper bound is enough
errors = {
    "mean": samples.mean(axis=1) - truth,
    "median": np.median(samples, axis=1) - truth,
    "Catoni": catoni_location(samples, confidence_scale(variance, n), axis=1) - truth,
}
fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
for name, values in errors.items():
    ax.hist(values, bins=np.linspace(-0.5, 0.7, 80), histtype="step", label=name)
ax.axvline(0, color="black", linewidth=0.8)
ax.set(xlabel="estimate less true mean", ylabel=f"of {repeats} samples")
ax.legend()
plt.show()

# %%
# The median estimates another quantity. Catoni's estimate has lighter tails than the mean:
for name, values in errors.items():
    print(f"{name:7s} 99 % of the absolute errors are below {np.quantile(abs(values), 0.99):.3f}")
print(catoni_interval(samples[0], variance))
