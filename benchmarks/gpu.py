"""Sweeps and fits on a CUDA device; writes a dated file in `results/`.

    python3 benchmarks/gpu.py [--profile] [--results FOLDER] [section ...]

Needs torch with CUDA, Triton, 80 GB of device memory, and marginpursuit, installed or unpacked from
its wheel on PYTHONPATH.
"""

import argparse
import cProfile
import datetime
import os
import pstats
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ["SCIPY_ARRAY_API"] = "1"  # for scikit-learn's logistic regression on the device

import numpy as np
import sklearn
import torch
import triton
import triton.language as tl
from common import RESULTS, keep, significant, table
from sklearn.linear_model import LogisticRegression

import marginpursuit
from marginpursuit import MarginPursuitClassifier, MarginPursuitClassifierCV
from marginpursuit._kernels import _triton
from marginpursuit.design import Standardisation, design_for
from marginpursuit.losses import INFLUENCE_BOUND, TRUNCATION, MarginLoss
from marginpursuit.tasks import Tasks

CUDA = "cuda"
PROFILE = False


def check() -> Iterator[str]:
    """Compare fits on the device with fits of NumPy, and repeated fits with each other."""
    torch.set_float32_matmul_precision("high")  # fits must ignore this setting
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 40)) @ rng.normal(size=(40, 40)) + rng.normal(size=40)
    y = np.argmax(X[:, :4] + 3 * rng.normal(size=(len(X), 4)), axis=1)
    rows = []
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        tensor = torch.asarray(X, device=CUDA).to(dtype)
        exact = tensor.double().cpu().numpy()
        for labels in (y, y % 2):
            reference = MarginPursuitClassifier().fit(exact, labels)
            fits = [
                MarginPursuitClassifier().fit(tensor, torch.asarray(labels, device=CUDA))
                for _ in range(3)
            ]
            same = all(np.array_equal(fit.coef_, fits[0].coef_) for fit in fits)
            score = np.abs(
                reference.decision_function(exact) - fits[0].decision_function(exact)
            ).max()
            quantiles = (
                reference.margin_statistics_.quantiles - fits[0].margin_statistics_.quantiles
            )
            cells = (fits[0].objective_ / reference.objective_ - 1, score, np.abs(quantiles).max())
            rows.append([str(dtype)[6:], labels.max() + 1, *(f"{x:.1e}" for x in cells), same])
    torch.set_float32_matmul_precision("highest")
    yield table(
        "Fits against NumPy, 20,000 x 40",
        ["dtype", "classes", "objective - 1", "scores", "quantiles of margins", "repeats exactly"],
        rows,
        "Largest differences from a float64 fit by NumPy to the same values.",
    )
    yield _check_cupy(X, y)


def _check_cupy(X: Any, y: Any) -> str:
    try:
        import cupy
    except ImportError:
        return "CuPy is not installed."
    model = MarginPursuitClassifier().fit(cupy.asarray(X), cupy.asarray(y))
    proba = model.predict_proba(cupy.asarray(X))
    reference = MarginPursuitClassifier().fit(X, y)
    gap = float(abs(proba - cupy.asarray(reference.predict_proba(X))).max())
    return (
        f"CuPy {cupy.__version__}: probabilities are {type(proba).__module__}."
        f"{type(proba).__name__}, with differences of at most {gap:.1e} from NumPy."
    )


def sweeps() -> Iterator[str]:
    """Time the sweep for one task, relative to reading the data once."""
    shapes = (
        (40_000_000, 54, torch.float32),
        (10_000_000, 256, torch.float32),
        (2_000_000, 784, torch.float32),
        (40_000_000, 128, torch.float32),
        (40_000_000, 54, torch.bfloat16),
        (40_000_000, 54, torch.float16),
        (10_000_000, 256, torch.bfloat16),
        (4_000_000, 784, torch.bfloat16),
        (10_000_000, 256, torch.uint8),
        (8_000_000, 784, torch.uint8),
    )
    yield table(
        "Sweep for one task, relative to reading X once",
        [
            "X",
            "dtype",
            "read ms",
            "read GB/s",
            "kernel ms",
            "reading / ours, kernel",
            "from NumPy to NumPy ms",
            "reading / ours, from NumPy to NumPy",
        ],
        [_sweep(*shape) for shape in shapes],
        "Kernel: device time, including the sum over its programs. From NumPy to NumPy: "
        "`design.sweep` from coefficients to gradient, including launches and copies. Shortest of "
        "20. Reading interprets every 4 bytes as a float32.",
    )


def _sweep(n_rows: int, n_columns: int, dtype: Any) -> list[Any]:
    X = torch.empty((n_rows, n_columns), dtype=dtype, device=CUDA)
    X.random_(0, 255) if dtype == torch.uint8 else X.normal_()
    codes = torch.randint(0, 2, (n_rows,), dtype=torch.uint8, device=CUDA)
    weights = torch.full((), 1 / n_rows, dtype=torch.float64, device=CUDA).expand(1, n_rows)
    one, loss = np.ones(1, dtype=np.intp), MarginLoss(scale=1.4)
    tasks = Tasks(codes, weights, one, one - 1, (loss,))
    coef = np.random.default_rng(0).normal(size=(n_columns, 1)) / 100
    vector = torch.asarray(coef[:, 0], dtype=torch.float32, device=CUDA)
    rest = (codes, 1, weights[0], vector, 0.1, loss, 1.0)
    kernel = _device_time(lambda: _triton.launch(X, *rest).sum(dim=0))
    with design_for(X) as design:
        identity = Standardisation.identity(n_columns)
        wall = _wall_time(lambda: design.sweep(coef, np.zeros(1), tasks, identity))
    read, size = _read_time(X), X.numel() * X.element_size() / 1e9
    return [
        f"{n_rows / 1e6:g}M x {n_columns}",
        str(dtype)[6:],
        f"{1e3 * read:.2f}",
        f"{size / read:.0f}",
        f"{1e3 * kernel:.2f}",
        f"{read / kernel:.1%}",
        f"{1e3 * wall:.2f}",
        f"{read / wall:.1%}",
    ]


def fits() -> Iterator[str]:
    """Time whole fits to 100M x 128 float32, and torch's L-BFGS on the same objective."""
    yield table(
        "Fit of 100M x 128 float32 on the device, two classes",
        [
            *("data", "default fit s", "passes", "fit as published s", "passes", "gap"),
            *("torch L-BFGS s", "evaluations", "gap", "torch L-BFGS / ours"),
        ],
        [_fit("independent columns", 0.0, 0), _fit("correlated columns", 1.0, 8)],
        "Times of fits include encoding of labels and margin statistics, that of the default also "
        "the leverage bound and probabilities. L-BFGS is torch's, with strong Wolfe line search "
        "and 20 pairs, on standardised columns and the objective of the paper, as the second fit "
        "at scale 1, whose time the ratio has; stopped within 1e-6 of the minimum, when it stalls, "
        "or after 30 s.",
    )


def _fit(name: str, spread: float, factors: int) -> list[Any]:
    X, y = _table(100_000_000, 128, spread, factors)
    MarginPursuitClassifier().fit(X[:100_000], y[:100_000])  # compiles the kernel
    model = MarginPursuitClassifier()
    seconds = min(_seconds(lambda: model.fit(X, y)) for _ in range(3))
    _profile(lambda: model.fit(X, y))
    published = MarginPursuitClassifier.as_published(scale=1.0)
    own = min(_seconds(lambda: published.fit(X, y)) for _ in range(3))
    tight = MarginPursuitClassifier.as_published(scale=1.0, tol=1e-9).fit(X, y)
    minimum = min(tight.objective_, published.objective_)
    peer, evaluations, gap = _torch_lbfgs(X, y, 1.0, minimum)
    return [
        *(name, f"{seconds:.3f}", model.n_passes_, f"{own:.3f}", published.n_passes_),
        *(f"{published.objective_ / minimum - 1:.0e}", f"{peer:.2f}", evaluations),
        *(f"{gap:.0e}", significant(peer / own)),
    ]


def logistic() -> Iterator[str]:
    """Time scikit-learn's logistic regression through the array API."""
    X, y = _table(10_000_000, 128, 1.0, 8)
    train, test = slice(0, 9_000_000), slice(9_000_000, None)
    scaled = (X - X.mean(0)) / X.std(0)
    MarginPursuitClassifier().fit(X[:100_000], y[:100_000])
    model = MarginPursuitClassifier()
    own = _seconds(lambda: model.fit(X[train], y[train]))
    error = 1 - model.score(X[test], y[test])
    rows = [["MarginPursuitClassifier", f"{own:.3f}", "", f"{error:.5f}"]]
    peer = LogisticRegression(C=np.inf, max_iter=1000)
    try:
        with sklearn.config_context(array_api_dispatch=True):
            seconds = _seconds(lambda: peer.fit(scaled[train], y[train]))
            found = peer.predict(scaled[test])
        error = float((found != y[test]).double().mean())
        ratio = significant(seconds / own)
        rows.append(["LogisticRegression(C=inf)", f"{seconds:.3f}", ratio, f"{error:.5f}"])
    except Exception as failure:  # not supported by all versions
        reason = str(failure).splitlines()[0][:120]
        rows.append(["LogisticRegression(C=inf)", "-", "", f"failed: {reason}"])
    yield table(
        "Against scikit-learn's logistic regression through the array API, 9M x 128 float32",
        ["estimator", "fit s", "theirs / ours", "test error"],
        rows,
        f"scikit-learn {sklearn.__version__} on standardised columns, in float32.",
    )


def probe() -> Iterator[str]:
    """Time a linear probe with a thousand classes."""
    torch.manual_seed(0)
    n_rows, n_columns, n_classes = 1_050_000, 768, 1000
    y = torch.randint(0, n_classes, (n_rows,), device=CUDA)
    X = torch.randn((n_rows, n_columns), device=CUDA)
    X += 0.25 * torch.randn((n_classes, n_columns), device=CUDA)[y]
    train, test = slice(0, 1_000_000), slice(1_000_000, None)
    MarginPursuitClassifier().fit(X[:20_000], y[:20_000] % 50)
    model = MarginPursuitClassifier()
    seconds = [_seconds(lambda: model.fit(X[train], y[train])) for _ in range(2)]
    _profile(lambda: model.fit(X[train], y[train]))
    scoring = _seconds(lambda: model.predict(X[test]))
    error = float((model.predict(X[test]) != y[test]).double().mean())
    yield table(
        "Linear probe: 1M x 768 float32, 1,000 classes",
        ["fit s", "again s", "passes", "test error", "predict 50,000 ms"],
        [
            [
                *(f"{x:.2f}" for x in seconds),
                model.n_passes_,
                f"{error:.4f}",
                f"{1e3 * scoring:.1f}",
            ]
        ],
        "Normal distributions around random class means; default parameters.",
    )


def selection() -> Iterator[str]:
    """Time a search on the device, and compare its choice with that of NumPy."""
    yield table(
        "Search: 56 candidates and 5 folds, float32",
        [
            "data",
            "fit s",
            "passes",
            "candidates in the last rung",
            "scores minus NumPy's",
            "winner",
        ],
        [_selection(50_000, 64, compare=True), _selection(4_000_000, 128, compare=False)],
        "A pass over a subsample counts as its fraction of the rows. Scores are accuracies.",
    )


def _selection(n_rows: int, n_columns: int, *, compare: bool) -> list[Any]:
    X, y = _table(n_rows, n_columns, 1.0, 8)
    model = MarginPursuitClassifierCV()
    seconds = _seconds(lambda: model.fit(X, y))
    _profile(lambda: model.fit(X, y))
    gap = winner = "not compared"
    if compare:
        reference = MarginPursuitClassifierCV().fit(X.cpu().numpy(), y.cpu().numpy())
        scores = [fit.cv_results_["mean_test_score"] for fit in (model, reference)]
        gap = f"{np.abs(scores[0] - scores[1]).max():.1e}"
        winner = "the same" if model.best_params_ == reference.best_params_ else "different"
    kept = int(np.count_nonzero(model.cv_results_["n_resources"] == n_rows))
    passes = f"{model.n_passes_:.0f}"
    return [f"{n_rows:,} x {n_columns}", f"{seconds:.2f}", passes, kept, gap, winner]


def _table(n_rows: int, n_columns: int, spread: float, factors: int) -> tuple[Any, Any]:
    """Return rows and labels; columns share factors and differ in unit by powers of ten."""
    torch.manual_seed(0)
    X = torch.empty((n_rows, n_columns), device=CUDA)
    loadings = torch.randn((factors, n_columns), device=CUDA)
    units = 10.0 ** (spread * torch.randn(n_columns, device=CUDA))
    direction = torch.randn(n_columns, device=CUDA) / n_columns**0.5
    y = torch.empty(n_rows, dtype=torch.int64, device=CUDA)
    for first in range(0, n_rows, 1 << 20):
        rows = X[first : first + (1 << 20)]
        rows.normal_()
        rows += torch.randn((len(rows), factors), device=CUDA) @ loadings
        noise = torch.randn(len(rows), device=CUDA)
        y[first : first + len(rows)] = rows @ direction + noise > 0
        rows *= units
    return X, y


def _torch_lbfgs(
    X: Any, y: Any, scale: float, minimum: float, max_seconds: float = 30.0
) -> tuple[float, int, float]:
    """Minimise the objective of a fit; return seconds, evaluations and relative suboptimality."""
    sign = y * 2.0 - 1.0
    inverse = X.std(0, correction=0) ** -1
    centre = X.mean(0)
    point = torch.zeros(X.shape[1] + 1, device=CUDA, requires_grad=True)
    optimiser = torch.optim.LBFGS(
        [point],
        max_iter=1,
        history_size=20,
        line_search_fn="strong_wolfe",
        tolerance_grad=0.0,
        tolerance_change=0.0,
    )
    evaluations = 0

    def objective() -> Any:
        nonlocal evaluations
        evaluations += 1
        optimiser.zero_grad()
        coef = point[:-1] * inverse
        margins = sign * (X @ coef + (point[-1] - centre @ coef))
        residual = 1.0 - margins
        within = residual.clamp(-TRUNCATION * scale, TRUNCATION * scale)
        square = (within / scale) ** 2
        beyond = INFLUENCE_BOUND * scale * (residual - within).abs()
        losses = within**2 * (0.5 - square / 24.0) + beyond
        value = losses.mean(dtype=torch.float64) + 0.5e-6 * (point[:-1] ** 2).sum()
        value.backward()
        return value

    objective()
    evaluations = 0
    torch.cuda.synchronize()
    start = time.perf_counter()
    value, before = float("inf"), float("inf")
    while time.perf_counter() - start < max_seconds:
        optimiser.step(objective)
        before, value = value, float(objective().detach())
        evaluations -= 1  # this evaluation is timed, but not counted
        if value <= minimum * (1 + 1e-6) or value >= before:
            break
    torch.cuda.synchronize()
    return time.perf_counter() - start, evaluations, value / minimum - 1


@triton.jit
def _sum_kernel(values, sums, n_values, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), tl.float32)
    for block in range(tl.program_id(0), n_values // BLOCK, tl.num_programs(0)):
        total += tl.load(values + block.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)).to(tl.float32)
    tl.store(sums + tl.program_id(0), tl.sum(total, axis=0))


def _read_time(X: Any) -> float:
    """Return the shortest time of a kernel that sums all bytes as float32."""
    X = X.view(torch.float32)
    processors = torch.cuda.get_device_properties(X.device).multi_processor_count
    sums = torch.empty(16 * processors, device=CUDA)
    return min(
        _device_time(
            lambda n=n: _sum_kernel[(n * processors,)](X, sums, X.numel(), BLOCK=8192, num_warps=8)
        )
        for n in (4, 8, 16)
    )


def _device_time(call: Callable[[], Any], repeats: int = 20) -> float:
    """Return the shortest device time of a call, in seconds."""
    call()
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(2_000_000)  # delays the start until all is queued: launches are not timed
        start.record()
        call()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1e3)
    return min(times)


def _wall_time(call: Callable[[], Any], repeats: int = 20) -> float:
    call()
    return min(_seconds(call) for _ in range(repeats))


def _seconds(call: Callable[[], Any]) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    call()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def _profile(call: Callable[[], Any]) -> None:
    if PROFILE:
        profile = cProfile.Profile()
        profile.runcall(call)
        pstats.Stats(profile).sort_stats("cumulative").print_stats("marginpursuit|torch|numpy", 35)


SECTIONS = {
    "check": check,
    "sweeps": sweeps,
    "fits": fits,
    "logistic": logistic,
    "probe": probe,
    "selection": selection,
}


def main() -> None:
    """Run the named sections, print them and write the result file."""
    global PROFILE
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("section", nargs="*", choices=[[], *SECTIONS])
    parser.add_argument("--profile", action="store_true", help="profile the fits")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the result file")
    options = parser.parse_args()
    PROFILE = options.profile
    today = datetime.date.today().isoformat()
    command = " ".join(["python3 benchmarks/gpu.py", *options.section])
    text = [
        f"# Benchmarks on a GPU, {today}",
        f"`{command}`: marginpursuit {marginpursuit.__version__}, {torch.cuda.get_device_name()}, "
        f"torch {torch.__version__}, triton {triton.__version__}, NumPy {np.__version__}, "
        f"scikit-learn {sklearn.__version__}",
    ]
    print("\n\n".join(text), flush=True)
    for name in options.section or SECTIONS:
        start = time.perf_counter()
        for part in SECTIONS[name]():
            text.append(part)
            print(f"\n{part}", flush=True)
        print(f"\n({name}: {time.perf_counter() - start:.0f} s)", flush=True)
        torch.cuda.empty_cache()
    keep("gpu", "\n\n".join(text) + "\n", options.results)


if __name__ == "__main__":
    main()
