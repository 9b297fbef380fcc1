"""Generated tables of the demonstration: customers, and messages."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginpursuit.tables import optional

__all__ = ["customers", "messages"]


def customers(n: int = 500, seed: int = 0) -> tuple[Any, NDArray[Any]]:
    """Return a table of customers as a CSV file has it, and who left."""
    pandas = optional("pandas")
    rng = np.random.default_rng(seed)
    plan = rng.choice(["basic", "pro", "team"], n, p=[0.5, 0.3, 0.2])
    city = rng.choice(["Lyon", "Graz", "Turin", "Porto", *(f"town {k}" for k in range(40))], n)
    age = rng.integers(18, 85, n)
    income = rng.lognormal(8, 0.6, n)
    calls = rng.poisson(1.5, n)
    days = rng.integers(0, 1200, n)
    start = pandas.Timestamp("2021-03-01")
    mood = rng.random(n)
    comments = [_comment(rng, bool(value < 0.3)) for value in mood]
    score = 1.2 * (plan == "basic") + 0.8 * calls - 0.004 * days + 2.5 * (mood < 0.3) - 1.6
    left = rng.random(n) < 1 / (1 + np.exp(-2.0 * score))
    frame = pandas.DataFrame(
        {
            "customer": [f"C{10_000 + number}" for number in range(n)],
            "age": np.where(rng.random(n) < 0.12, "n/a", age.astype(str)),
            "income": [f"{value:,.2f}" for value in income],
            "plan": plan,
            "city": city,
            "newsletter": rng.choice(["yes", "no"], n),
            "calls": calls.astype(str),
            "signup": [(start + pandas.Timedelta(days=int(d))).strftime("%d.%m.%Y") for d in days],
            "comment": comments,
            "country": "EU",
        }
    )
    return frame, np.where(left, "left", "stays")


def _comment(rng: np.random.Generator, is_unhappy: bool) -> str:
    usual = ["the", "service", "app", "invoice", "support", "was", "very", "again", "this", "month"]
    moods = ["slow", "refund", "broken"] if is_unhappy else ["good", "friendly", "fast", "fine"]
    words = [*rng.choice(usual, 5), *rng.choice(moods, 2)]
    return " ".join(rng.permutation(words))


def messages(n: int = 600, seed: int = 1) -> tuple[Any, NDArray[Any]]:
    """Return short texts and their kind; 8 % of the labels are wrong."""
    pandas = optional("pandas")
    rng = np.random.default_rng(seed)
    common = [f"word{k}" for k in range(400)]
    topics = ([f"order{k}" for k in range(30)], [f"login{k}" for k in range(30)])
    kinds = rng.integers(0, 2, n)
    texts = [
        " ".join(rng.permutation([*rng.choice(common, 12), *rng.choice(topics[kind], 3)]))
        for kind in kinds
    ]
    wrong = rng.random(n) < 0.08
    labels = np.array(["sales", "technical"])[np.where(wrong, 1 - kinds, kinds)]
    return pandas.DataFrame({"message": texts}), labels
