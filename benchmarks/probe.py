"""A linear probe at the size of ImageNet: the choice among 45 penalties, and the fit, on a GPU.

    python3 benchmarks/probe.py [--results FOLDER] [--rows N --columns D --classes K] [part ...]

Features are synthetic with a spectrum as that of embeddings: variances and differences of class
means fall as powers, columns are a random rotation of these, and labels have 5 % errors. Peers have
the same features, standardised, and the same precision of products (TF32). Results are written as
they come, to `probe.partial`; a part that fails or exceeds its time says so. Needs torch; a GPU for
the full size.
"""

import argparse
import datetime
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import RESULTS, keep, significant

from marginpursuit import MarginPursuitClassifier, probe
from marginpursuit.design import Standardisation, arrays
from marginpursuit.design.arrays import ArrayDesign, ArrayPolicy
from marginpursuit.losses import JointLoss, MarginLoss
from marginpursuit.tasks import JointTasks, Labels

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

#: Penalties of the probe, in the unit "standardised", and C of logistic regression.
ALPHAS = np.geomspace(1e-1, 1e-9, 45)
C_VALUES = 10.0 ** np.linspace(-6, 5, 45)


@dataclass(frozen=True)
class Features:
    """Training, validation and test rows on the device."""

    train: tuple[Any, Any]
    validation: tuple[Any, Any]
    test: tuple[Any, Any]
    n_classes: int

    @classmethod
    def make(cls, n_rows: int, n_columns: int, n_classes: int, seed: int = 0) -> "Features":
        """Draw features with a power-law spectrum and 5 % wrong labels."""
        rng = torch.Generator(DEVICE).manual_seed(seed)

        def normal(*shape: int) -> Any:
            return torch.randn(shape, generator=rng, device=DEVICE)

        place = torch.arange(1, n_columns + 1, device=DEVICE, dtype=torch.float32)
        deviation = place**-0.5
        # 2 Σ of the ratios is the mean squared Mahalanobis distance of two classes: 50.
        ratio = place**-0.5
        ratio *= 25.0 / ratio.sum()
        means = normal(n_classes, n_columns) * deviation * ratio.sqrt()
        rotation = torch.linalg.qr(normal(n_columns, n_columns))[0]
        n_other = max(50 * n_classes, n_rows // 20)
        parts = []
        for size in (n_rows, n_other, n_other):
            y = torch.randint(0, n_classes, (size,), generator=rng, device=DEVICE)
            X = torch.empty((size, n_columns), device=DEVICE)
            for first in range(0, size, 1 << 16):
                some = slice(first, first + (1 << 16))
                noise = normal(len(y[some]), n_columns) * deviation
                X[some] = (noise + means[y[some]]) @ rotation + 0.5
            wrong = torch.rand(size, generator=rng, device=DEVICE) < 0.05
            other = torch.randint(0, n_classes, (size,), generator=rng, device=DEVICE)
            parts.append((X, torch.where(wrong, other, y)))
        return cls(*parts, n_classes)

    def to(self, dtype: Any) -> "Features":
        """Return the features in another dtype."""
        parts = [(X.to(dtype), y) for X, y in (self.train, self.validation, self.test)]
        return Features(*parts, self.n_classes)

    def standardised(self) -> "Features":
        """Return float32 features with mean 0 and deviation 1."""
        mean, deviation = self.train[0].mean(0), self.train[0].std(0)
        parts = [((X - mean) / deviation, y) for X, y in (self.train, self.validation, self.test)]
        return Features(*parts, self.n_classes)


def sweeps(features: Features) -> list[str]:
    """Time a pass with the joint loss: fused kernel or array functions, float32 or TF32."""
    X, y = features.train
    n_rows, n_classes = len(y), features.n_classes
    weights = torch.full((), 1 / n_rows, dtype=torch.float64, device=DEVICE).expand(n_rows)
    loss = JointLoss.at_level(MarginLoss(overconfidence=0.0))
    tasks = JointTasks.of(Labels(y, n_classes), weights, loss)
    rng = np.random.default_rng(0)
    coef = torch.asarray(0.05 * rng.normal(size=(X.shape[1], n_classes)), device=DEVICE)
    intercept = torch.zeros(n_classes, dtype=torch.float64, device=DEVICE)
    place = torch.zeros(X.shape[1], dtype=torch.float64, device=DEVICE)
    identity = Standardisation(place, place + 1)
    header = (
        "products | losses | pass ms | ours / array functions in float32 | gradient, difference"
    )
    lines = [f"| {header} |", "|---|---|---|---|---|"]
    reference = first = None
    for precision in ("highest", "high"):
        for fused in (False, True):
            with ArrayDesign(X, policy=ArrayPolicy(float32_precision=precision)) as design:
                if not fused:
                    design._joint_kernel = None
                elif design._joint_kernel is None:
                    continue
                gradient = design.sweep(coef, intercept, tasks, identity).gradient
                seconds = min(
                    _seconds(lambda: design.sweep(coef, intercept, tasks, identity))
                    for _ in range(3)
                )
            if reference is None:
                reference, first = gradient, seconds
            gap = float((gradient - reference).abs().max() / reference.abs().max())
            name = "fused kernel" if fused else "array functions"
            product = {"highest": "float32", "high": "TF32"}[precision]
            cells = f"{1e3 * seconds:.1f} | {significant(seconds / first)} | {gap:.0e}"
            lines.append(f"| {product} | {name} | {cells} |")
    return lines


def probes(features: Features, dtype: Any, times: dict[Any, float]) -> list[str]:
    """Time `probe` with 45 penalties, and measure its accuracies; add its seconds to `times`."""
    own = features.to(dtype)
    _reset_peak()
    start = time.perf_counter()
    result = probe(*own.train, validation=own.validation, test=own.test, alphas=ALPHAS)
    seconds = times[dtype] = time.perf_counter() - start
    table = {name: values[-1] for name, values in result.table.items()}
    return _row(
        f"probe, {str(dtype)[6:]}",
        f"alpha {table['alpha']:.1e}",
        seconds,
        (max(result.validation_accuracies), table["top_1"], table["top_5"]),
        table["mean_per_class"],
        f"target 60 s: {'met' if seconds < 60 else 'missed'}; the fit took "
        f"{result.model.n_iter_} iterations after the path",
        None,
    )


def logistic_regression(features: Features, max_seconds: float, ours: float | None) -> list[str]:
    """Fit softmax regression at 45 values of C by torch's L-BFGS, warm-started."""
    z = features.standardised()
    _reset_peak()
    n_rows, n_columns = z.train[0].shape
    shape = n_columns + 1, features.n_classes
    point = torch.zeros(shape, device=DEVICE, requires_grad=True)
    best, n_done, n_passes = (-1.0, 0.0, point.detach().clone()), 0, 0
    begin = time.perf_counter()
    for C in C_VALUES:
        n_passes += _minimise_softmax(z.train, point, 1.0 / (C * n_rows), begin + max_seconds)
        n_done += 1
        accuracy = _top(z.validation, point.detach())[0]
        if accuracy > best[0]:
            best = accuracy, float(C), point.detach().clone()
        if time.perf_counter() - begin > max_seconds:
            break
    seconds = time.perf_counter() - begin
    top_1, top_5, per_class = _top(z.test, best[2])
    note = f"{n_done} of 45 values in {n_passes} passes"
    if n_done < len(C_VALUES):
        note += f", stopped after {max_seconds:g} s"
    return _row(
        "softmax regression, torch L-BFGS, float32",
        *(f"C {best[1]:.1e}", seconds, (best[0], top_1, top_5), per_class, note, ours),
    )


def adamw(features: Features, ours: float | None) -> list[str]:
    """Train a linear layer by AdamW with cross-entropy, ten epochs at four learning rates."""
    z = features.standardised()
    _reset_peak()
    X, y = z.train
    best: tuple[float, float, Any] = (-1.0, 0.0, None)
    batch = min(8192, max(64, len(y) // 20))
    n_epochs, n_steps = 10, -(-len(y) // batch)
    begin = time.perf_counter()
    for rate in (1e-4, 3e-4, 1e-3, 3e-3):
        layer = torch.nn.Linear(X.shape[1], features.n_classes, device=DEVICE)
        torch.nn.init.zeros_(layer.weight)
        optimiser = torch.optim.AdamW(layer.parameters(), lr=rate, weight_decay=1e-2)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, n_epochs * n_steps)
        for _ in range(n_epochs):
            order = torch.randperm(len(y), device=DEVICE)
            for rows in order.split(batch):
                optimiser.zero_grad()
                torch.nn.functional.cross_entropy(layer(X[rows]), y[rows]).backward()
                optimiser.step()
                schedule.step()
        point = torch.cat([layer.weight.detach().T, layer.bias.detach()[None]])
        accuracy = _top(z.validation, point)[0]
        if accuracy > best[0]:
            best = accuracy, rate, point
    seconds = time.perf_counter() - begin
    top_1, top_5, per_class = _top(z.test, best[2])
    return _row(
        "linear layer, AdamW, float32",
        *(f"rate {best[1]:g}", seconds, (best[0], top_1, top_5), per_class),
        "10 epochs at 4 learning rates",
        ours,
    )


def joint_and_rest(options: argparse.Namespace, limit: Callable[[int], Any]) -> Iterator[list[str]]:
    """Time default fits with the joint loss and of one class against the rest, 1M x 768."""
    n_rows = min(1_000_000, options.rows)
    features = Features.make(n_rows, min(768, options.columns), options.classes)
    X, y = features.train
    test, labels = features.test
    times: dict[tuple[str, Any], float] = {}
    for probability in (None, "held_out"):
        for kind in ("joint", "ovr"):
            name, ratio = f"{kind}, probability={probability!r}", ""
            try:
                with limit(60):
                    model = MarginPursuitClassifier(multi_class=kind, probability=probability)
                    _reset_peak()
                    seconds = _seconds(lambda model=model: model.fit(X, y))
                times[kind, probability] = seconds
                if kind == "ovr" and ("joint", probability) in times:
                    ratio = _verdict(seconds / times["joint", probability])
                error = 1 - model.score(test, labels)
                passes = f"{model.n_passes_:g}"
                cells = (f"{seconds:.2f}", ratio, passes, f"{100 * error:.2f}", _peak())
            except Exception as failure:
                cells = ("-", "", "-", "-", f"{type(failure).__name__}: {str(failure)[:80]}")
            yield ["| " + " | ".join((name, *cells)) + " |"]


def _verdict(ratio: float) -> str:
    """Return the time of one against the rest over that of the joint loss, and the target."""
    return f"{significant(ratio)} (target at least 0.5: {'met' if ratio >= 0.5 else 'missed'})"


def _minimise_softmax(train: tuple[Any, Any], point: Any, penalty: float, deadline: float) -> int:
    """Continue softmax regression at a penalty; return the number of passes.

    Stops where a step decreases the objective by less than 3e-5 of its first value.
    """
    n_passes = 0
    first, _ = _softmax_objective(*train, point.detach(), penalty)

    def objective() -> Any:
        nonlocal n_passes
        n_passes += 1
        if time.perf_counter() > deadline:
            raise StopIteration
        value, point.grad = _softmax_objective(*train, point.detach(), penalty)
        return value

    optimiser = torch.optim.LBFGS(
        [point],
        max_iter=100,
        history_size=10,
        line_search_fn="strong_wolfe",
        tolerance_grad=0.0,
        tolerance_change=3e-5 * float(first),
    )
    with suppress(StopIteration):
        optimiser.step(objective)
    return n_passes + 1


def _softmax_objective(X: Any, y: Any, point: Any, penalty: float) -> tuple[Any, Any]:
    """Return the mean cross-entropy plus penalty, and its gradient, in chunks of rows."""
    gradient, value = torch.zeros_like(point), torch.zeros((), device=DEVICE, dtype=torch.float64)
    for first in range(0, len(y), 1 << 16):
        rows, labels = X[first : first + (1 << 16)], y[first : first + (1 << 16)]
        logits = torch.addmm(point[-1], rows, point[:-1])
        log_proba = torch.log_softmax(logits, dim=1)
        value -= log_proba.gather(1, labels[:, None]).sum(dtype=torch.float64)
        residual = log_proba.exp_()
        residual[torch.arange(len(labels), device=DEVICE), labels] -= 1.0
        gradient[:-1] += rows.T @ residual
        gradient[-1] += residual.sum(0)
    gradient /= len(y)
    gradient[:-1] += penalty * point[:-1]
    return value / len(y) + 0.5 * penalty * (point[:-1] ** 2).sum(), gradient


@torch.no_grad()
def _top(part: tuple[Any, Any], point: Any) -> tuple[float, float, float]:
    """Return top-1, top-5 and mean-per-class accuracy of a linear model."""
    X, y = part
    scores = torch.addmm(point[-1], X, point[:-1])
    highest = scores.topk(min(5, scores.shape[1]), dim=1).indices
    right = highest[:, 0] == y
    sizes = torch.bincount(y, minlength=scores.shape[1])
    correct = torch.bincount(y, weights=right.double(), minlength=scores.shape[1])
    per_class = (correct / sizes.clamp(min=1))[sizes > 0].mean()
    within = (highest == y[:, None]).any(1).double().mean()
    return float(right.double().mean()), float(within), float(per_class)


def _row(
    name: str,
    chosen: str,
    seconds: float,
    accuracies: tuple[float, float, float],
    per_class: float,
    note: str,
    ours: float | None,  # seconds of the probe in float32
) -> list[str]:
    ratio = significant(seconds / ours) if ours else ""
    cells = [f"{100 * accuracy:.2f}" for accuracy in (*accuracies, per_class)]
    return [
        "| " + " | ".join([name, ratio, chosen, f"{seconds:.1f}", *cells, _peak(), note]) + " |"
    ]


def _seconds(call: Callable[[], Any]) -> float:
    _synchronise()
    start = time.perf_counter()
    call()
    _synchronise()
    return time.perf_counter() - start


def _synchronise() -> None:
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def _reset_peak() -> None:
    if DEVICE == "cuda":
        torch.cuda.reset_peak_memory_stats()


def _peak() -> str:
    if DEVICE != "cuda":
        return "-"
    return f"{torch.cuda.max_memory_allocated() / 1e9:.1f}"


@contextmanager
def _limit(seconds: int) -> Iterator[None]:
    """Raise a TimeoutError in the main thread after some seconds."""

    def stop(*_: Any) -> None:
        raise TimeoutError(f"stopped after {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


class Report:
    """A result file that is written line by line."""

    def __init__(self, folder: Path, command: str) -> None:
        folder.mkdir(exist_ok=True, parents=True)
        today = datetime.date.today().isoformat()
        self.folder, self.path = folder, folder / "probe.partial"
        self.path.write_text("")
        device = torch.cuda.get_device_name() if DEVICE == "cuda" else "CPU"
        self.add(f"# Linear probes, {today}", "")
        self.add(f"`{command}`: {device}, torch {torch.__version__}, NumPy {np.__version__}")

    def add(self, *lines: str) -> None:
        """Append lines, and print them."""
        with self.path.open("a") as file:
            file.write("\n".join(lines) + "\n")
        print(*lines, sep="\n", flush=True)

    def close(self) -> None:
        """Compare the results with those kept before, and keep them."""
        keep("probe", self.path.read_text(encoding="utf-8"), self.folder)
        self.path.unlink()

    def part(self, seconds: int, name: str, make: Callable[[], list[str]]) -> bool:
        """Run a part within a time limit; add its lines, or why it failed; return if it ran."""
        is_done = True
        try:
            with _limit(seconds):
                self.add(*make())
        except Exception as failure:
            is_done = False
            traceback.print_exc()
            self.add(f"| {name} | failed: {type(failure).__name__}: {str(failure)[:160]} |")
        if DEVICE == "cuda":
            torch.cuda.empty_cache()
        return is_done


def main() -> None:
    """Run the parts that are asked for, by default all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", default=["sweeps", "probe", "peers", "classes"])
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--rows", type=int, default=1_280_000)
    parser.add_argument("--columns", type=int, default=1024)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--peer-seconds", type=int, default=75)
    options = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    shape = f"{options.rows:,} x {options.columns}, {options.classes:,} classes"
    report = Report(options.results, "python3 benchmarks/probe.py " + " ".join(options.parts))
    small = Features.make(4000, options.columns, min(20, options.classes))
    if not report.part(60, "compilation", lambda: _warm_up(small)):
        arrays._joint_kernel = lambda matrix: None
        report.add("", "Without the fused kernel of joint losses:")
        report.part(60, "compilation", lambda: _warm_up(small))
    _one_size(report, options, shape)
    if "classes" in options.parts:
        shape = f"{min(options.rows, 1_000_000):,} x {min(768, options.columns)}"
        report.add("", f"## Joint loss and one against the rest, {shape}, float32", "")
        report.add(
            "| fit | s | one against the rest / ours | passes | error % | GB |",
            "|---|---|---|---|---|---|",
        )
        try:
            for lines in joint_and_rest(options, _limit):
                report.add(*lines)
        except Exception as failure:
            report.add(f"| failed: {type(failure).__name__}: {str(failure)[:160]} |")
    report.close()


def _one_size(report: Report, options: argparse.Namespace, shape: str) -> None:
    """Run the parts that share one set of features."""
    features = Features.make(options.rows, options.columns, options.classes)
    if "sweeps" in options.parts:
        report.add("", f"## A pass with the joint loss, {shape}", "")
        report.part(60, "sweeps", lambda: sweeps(features))
    header = "method | theirs / ours | chosen | s | validation % | top-1 % | top-5 %"
    header += " | mean per class % | GB | note"
    report.add("", f"## Choice and fit, {shape}", "", f"| {header} |", "|" + "---|" * 10)
    times: dict[Any, float] = {}
    if "probe" in options.parts:
        for dtype in (torch.float32, torch.float16):
            report.part(120, "probe", lambda dtype=dtype: probes(features, dtype, times))
    if "peers" in options.parts:
        limit, ours = options.peer_seconds, times.get(torch.float32)
        report.part(limit + 60, "L-BFGS", lambda: logistic_regression(features, limit, ours))
        report.part(90, "AdamW", lambda: adamw(features, ours))


def _warm_up(small: Features) -> list[str]:
    """Compile the kernels and load the libraries."""
    start = time.perf_counter()
    probe(*small.train, validation=small.validation, alphas=[1e-2, 1e-3])
    MarginPursuitClassifier(multi_class="ovr").fit(*small.train)
    return ["", f"Compilation of kernels, not included below: {time.perf_counter() - start:.1f} s."]


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    main()
