"""
A network head with a robust loss
=================================

A head with one hidden layer, trained by AdamW on features with 30 % wrong labels: with
cross-entropy, and with the joint margin loss, :func:`~marginpursuit.interop.torch_loss`.

Both losses are bounded in their derivative, and both fit wrong labels in the end. A small scale
makes the margin loss linear for rows with margins below the level: a row far on the wrong side then
counts no more than one at the boundary, and the error on clean rows is lower for most of the
training.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from marginpursuit.interop import torch_loss

torch.set_num_threads(1)
X, y = load_digits(return_X_y=True)
X = (X / 16 - 0.5).astype(np.float32)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.5, random_state=0)
rng = np.random.default_rng(0)
wrong = rng.random(len(y_train)) < 0.3
noisy = np.where(wrong, (y_train + rng.integers(1, 10, len(y_train))) % 10, y_train)
rows, labels, test = torch.tensor(X_train), torch.tensor(noisy), torch.tensor(X_test)

# %%
# Train both heads from the same start, and measure the error on clean rows after each epoch.


def train(loss, n_epochs=30):
    """Return the error on clean rows after each epoch, in per cent."""
    torch.manual_seed(0)
    head = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    optimiser = torch.optim.AdamW(head.parameters(), lr=3e-3)
    errors = []
    for _ in range(n_epochs):
        for batch in torch.randperm(len(rows)).split(64):
            optimiser.zero_grad()
            loss(head(rows[batch]), labels[batch]).backward()
            optimiser.step()
        with torch.no_grad():
            found = head(test).argmax(dim=1).numpy()
        errors.append(100 * np.mean(found != y_test))
    return errors


fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
losses = {"cross-entropy": torch.nn.CrossEntropyLoss(), "margin loss": torch_loss(scale=0.3)}
for name, loss in losses.items():
    ax.plot(train(loss), label=name)
ax.set(xlabel="epoch", ylabel="error on clean rows, %", ylim=(0, None))
ax.legend()
plt.show()
