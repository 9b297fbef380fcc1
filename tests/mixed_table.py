"""A mixed table for tests: identifiers, numbers, categories, dates, text and missing cells."""

import numpy as np
import pandas as pd


def mixed_table(n=200, seed=0):
    """Return a frame of text cells, as a CSV file has them, with the target "status"."""
    rng = np.random.default_rng(seed)
    words = ["refund", "late", "good", "great", "parcel", "thanks"]
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), "D")
    plan = rng.choice(["basic", "pro", "team"], n)
    notes = [" ".join(rng.choice(words, 4)) for _ in range(n)]
    frame = pd.DataFrame(
        {
            "customer": [f"C{10000 + number}" for number in range(n)],
            "age": np.where(rng.random(n) < 0.1, "", rng.integers(18, 90, n).astype(str)),
            "income": [f"{value:,.2f}" for value in rng.lognormal(8, 1, n)],
            "plan": plan,
            "city": rng.choice(["Paris", "Rome", *(f"town {k}" for k in range(30))], n),
            "active": rng.choice(["yes", "no"], n),
            "signup": days.strftime("%d.%m.%Y"),
            "note": notes,
            "constant": "x",
            "empty": "",
        }
    )
    left = (plan == "pro") | np.array(["refund" in note for note in notes])
    noise = rng.random(n) < 0.05
    return frame.assign(status=np.where(left ^ noise, "left", "stays"))
