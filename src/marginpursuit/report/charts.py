"""The charts of a report, as SVG with the colours of the style sheet.

All charts are 360 units wide, so that text has its natural size on a phone; wider screens place
several next to each other.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from marginpursuit.experiments.method_results import Course, MethodResult, wilson_interval

__all__ = ["calibration_chart", "cost_chart", "course_frames", "error_chart", "margin_panels"]


@dataclass(frozen=True)
class Layout:
    """Sizes in SVG units."""

    width: int = 360
    left: int = 40  # space for the labels of the vertical axis
    right: int = 10
    bottom: int = 34  # space for the labels of the horizontal axis
    row: int = 34  # height of a method in the error chart
    cost: int = 260  # height of the cost chart
    panel: int = 200  # height of the margin panels
    calibration: int = 150  # height of a calibration chart

    @property
    def plot_width(self) -> int:
        """Width between the labels."""
        return self.width - self.left - self.right


#: The sizes of all charts.
_LAYOUT = Layout()


def error_chart(methods: Sequence[MethodResult]) -> Markup:
    """Draw the test error of each method with its interval, one row per method."""
    top = max(method.error_interval[1] for method in methods)
    ticks = _ticks(0.0, 100 * top)
    height = _LAYOUT.row * len(methods)

    def x(error: float) -> float:
        return 14 + 100 * error / ticks[-1] * (_LAYOUT.width - 32)

    parts = [_grid_x([(x(tick / 100), f"{tick:g} %") for tick in ticks], height)]
    for number, method in enumerate(methods):
        low, high = method.error_interval
        y = _LAYOUT.row * number + 24
        title = f"{method.name}: {_percent(method.error)} ({_percent(low)} to {_percent(high)})"
        marks = (
            _element("text", f"{number + 1}  {method.name}", x=6, y=y - 9, class_="name")
            + _element("path", d=f"M{x(low):.1f} {y}H{x(high):.1f}", class_="whisker")
            + _element("circle", cx=f"{x(method.error):.1f}", cy=y, r=4, class_="dot")
        )
        parts.append(_element("g", _element("title", title) + marks))
    return _svg(parts, height + _LAYOUT.bottom, "Test error with intervals, by method")


def cost_chart(methods: Sequence[MethodResult]) -> Markup:
    """Draw the test error of each method against the time of a fit, on a log scale."""
    height = _LAYOUT.cost
    errors = [100 * method.error for method in methods]
    times = [math.log10(max(method.seconds, 1e-6)) for method in methods]
    rows = _ticks(0.0, max(errors) or 1.0)
    first, last = math.floor(min(times)), max(math.ceil(max(times)), math.floor(min(times)) + 1)

    def x(time: float) -> float:
        return _LAYOUT.left + 12 + (time - first) / (last - first) * (_LAYOUT.plot_width - 24)

    def y(error: float) -> float:
        return 14 + (1 - error / rows[-1]) * (height - 14)

    columns = [(x(power), _time(10.0**power)) for power in range(first, last + 1)]
    parts = [
        _grid_x(columns, height, "seconds to fit"),
        _grid_y([(y(row), f"{row:g} %") for row in rows]),
    ]
    placed: list[tuple[float, float]] = []
    for number, (method, error, time) in enumerate(zip(methods, errors, times, strict=True)):
        spot = _badge_position((x(time), y(error)), placed)
        placed.append(spot)
        title = f"{method.name}: {_percent(method.error)}, {_time(method.seconds)}"
        parts.append(
            _element(
                "g",
                _element("title", title)
                + _element(
                    "path",
                    d=f"M{x(time):.1f} {y(error):.1f}L{spot[0]:.1f} {spot[1]:.1f}",
                    class_="leader",
                )
                + _element("circle", cx=f"{x(time):.1f}", cy=f"{y(error):.1f}", r=3, class_="dot")
                + _element("circle", cx=f"{spot[0]:.1f}", cy=f"{spot[1]:.1f}", r=9, class_="badge")
                + _element(
                    "text",
                    str(number + 1),
                    x=f"{spot[0]:.1f}",
                    y=f"{spot[1] + 4:.1f}",
                    class_="number",
                ),
            )
        )
    return _svg(parts, height + _LAYOUT.bottom, "Time of a fit against test error, by method")


def calibration_chart(bins: Sequence[tuple[float, float, int]]) -> Markup:
    """Draw frequencies with 95 % Wilson intervals against probabilities.

    Bins with few samples are merged with their neighbours.
    """
    size, left = _LAYOUT.calibration - 30, 28

    def point(probability: float, frequency: float) -> tuple[float, float]:
        return left + probability * size, 6 + (1 - frequency) * size

    merged = merge_bins(bins)
    places = ["{:.1f} {:.1f}".format(*point(mean, frequency)) for mean, frequency, _ in merged]
    parts = [
        _element("path", d=f"M{left} 6V{6 + size}H{left + size}", class_="axis"),
        _element("path", d=f"M{left} {6 + size}L{left + size} 6", class_="ideal"),
        _element("path", d="M" + "L".join(places), class_="curve"),
    ]
    for value in (0, 0.5, 1):
        x, y = left + value * size, 6 + (1 - value) * size
        parts.append(_element("text", f"{value:g}", x=x, y=size + 20, class_="tick middle"))
        parts.append(_element("text", f"{value:g}", x=left - 5, y=y + 4, class_="tick end"))
    for mean, frequency, count in merged:
        low, high = wilson_interval(frequency, count)
        x, y = point(mean, frequency)
        title = (
            f"probability {mean:.2f}, frequency {frequency:.2f} ({low:.2f} to {high:.2f}), "
            f"{count} samples"
        )
        bar = f"M{x:.1f} {point(mean, low)[1]:.1f}V{point(mean, high)[1]:.1f}"
        marks = _element("path", d=bar, class_="whisker") + _element(
            "circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=3
        )
        parts.append(_element("g", _element("title", title) + marks))
    return _svg(
        parts,
        _LAYOUT.calibration,
        "Frequency against probability",
        _LAYOUT.width // 2 - 24,
        "calibration",
    )


def merge_bins(
    bins: Sequence[tuple[float, float, int]], least: int = 20
) -> list[tuple[float, float, int]]:
    """Merge neighbouring bins until each has at least `least` samples, if there are as many."""
    merged: list[tuple[float, float, int]] = []
    for place, current in enumerate(bins):
        is_last = place == len(bins) - 1
        if merged and (merged[-1][2] < least or (is_last and current[2] < least)):
            merged[-1] = _pooled(merged[-1], current)
        else:
            merged.append(current)
    return merged


def _pooled(a: tuple[float, float, int], b: tuple[float, float, int]) -> tuple[float, float, int]:
    """Return mean probability, frequency and size of two bins together."""
    total = a[2] + b[2]
    mean, frequency = ((a[k] * a[2] + b[k] * b[2]) / total for k in (0, 1))
    return mean, frequency, total


def margin_panels(course: Course) -> Markup:
    """Draw the margins at the first and the last checkpoint; the slider changes the latter."""
    drawn = course_frames(course)
    ticks = Markup("").join(
        _element("text", text, x=x, y=_LAYOUT.panel + 14, class_="tick middle")
        for x, text in drawn["ticks"]
    )
    panels = []
    for when, frame in (("before", drawn["frames"][0]), ("now", drawn["frames"][-1])):
        shapes = [
            *(_element("path", d=frame[shape], class_=shape) for shape in ("wrong", "right")),
            _element("path", d=drawn["level"], class_="level"),
            _element("path", d=frame["location"], class_="location"),
            _element("path", d=f"M0 {_LAYOUT.panel}H{_LAYOUT.width}", class_="axis"),
            _element("g", ticks, class_="ticks"),
        ]
        svg = _svg(shapes, _LAYOUT.panel + 20, "Distribution of the held-out margins")
        caption = _element("figcaption", frame["caption"], aria_live="polite")
        panels.append(_element("figure", caption + svg, class_=when))
    return Markup("").join(panels)


def course_frames(course: Course) -> dict[str, Any]:
    """Return the SVG paths of the margin panels at each checkpoint, and the ticks of the axis."""
    low, high = course.edges[0], course.edges[-1]

    def x(margin: float) -> float:
        return (margin - low) / (high - low) * _LAYOUT.width

    # The vertical axis suits the last checkpoint; the narrow peaks of the first may be cut off.
    tallest = 1.6 * max(course.checkpoints[-1].density)
    zero = min(range(len(course.edges)), key=lambda number: abs(course.edges[number]))
    frames = []
    for point in course.checkpoints:
        heights = [
            round(min(1.0, density / tallest) * (_LAYOUT.panel - 8)) for density in point.density
        ]
        frames.append(
            {
                "caption": (
                    f"after {point.steps} {'step' if point.steps == 1 else 'steps'}: test error "
                    f"{_percent(point.error)}, location {point.location:.2f}"
                ),
                "wrong": _histogram(course.edges[: zero + 1], heights[:zero], x),
                "right": _histogram(course.edges[zero:], heights[zero:], x),
                "location": _vertical(x(point.location)),
            }
        )
    ticks = [(round(x(tick), 1), f"{tick:g}") for tick in _ticks(low, high) if low <= tick <= high]
    return {"frames": frames, "level": _vertical(x(course.level)), "ticks": ticks}


def _histogram(edges: Sequence[float], heights: Sequence[int], x: Callable[[float], float]) -> str:
    """Return the outline of a histogram as an SVG path."""
    if not heights:
        return ""
    steps = "".join(
        f"V{_LAYOUT.panel - height}H{x(edge):.1f}"
        for height, edge in zip(heights, edges[1:], strict=True)
    )
    return f"M{x(edges[0]):.1f} {_LAYOUT.panel}{steps}V{_LAYOUT.panel}Z"


def _vertical(x: float) -> str:
    return f"M{x:.1f} 0V{_LAYOUT.panel}" if 0 <= x <= _LAYOUT.width else ""


def _badge_position(
    spot: tuple[float, float], placed: list[tuple[float, float]]
) -> tuple[float, float]:
    """Return the first position on a spiral around a point where a badge overlaps no other."""
    for turn in range(200):
        radius, angle = 14 + turn * 0.6, -math.pi / 2 + turn * 0.8
        x, y = spot[0] + radius * math.cos(angle), spot[1] + radius * math.sin(angle)
        inside = _LAYOUT.left + 9 <= x <= _LAYOUT.width - 9 and 9 <= y <= _LAYOUT.cost - 5
        if inside and all(math.hypot(x - a, y - b) > 19 for a, b in placed):
            return x, y
    return spot


def _ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Return at most about `most` multiples of 1, 2 or 5 · 10ᵏ that enclose [low, high]."""
    raw = max(high - low, 1e-9) / (most - 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(step * number, 12) for number in range(first, max(last, first + 1) + 1)]


def _grid_x(ticks: Sequence[tuple[float, str]], height: float, label: str = "") -> Markup:
    lines = [
        _element("path", d=f"M{x:.1f} 0V{height}", class_="grid")
        + _element("text", text, x=f"{x:.1f}", y=height + 14, class_="tick middle")
        for x, text in ticks
    ]
    name = _element("text", label, x=_LAYOUT.width - 4, y=height + 30, class_="tick end")
    return Markup("").join([*lines, name if label else Markup("")])


def _grid_y(ticks: Sequence[tuple[float, str]]) -> Markup:
    return Markup("").join(
        _element("path", d=f"M{_LAYOUT.left} {y:.1f}H{_LAYOUT.width}", class_="grid")
        + _element("text", text, x=_LAYOUT.left - 6, y=f"{y + 4:.1f}", class_="tick end")
        for y, text in ticks
    )


def _svg(
    parts: Sequence[Markup],
    height: float,
    label: str,
    width: float = _LAYOUT.width,
    class_: str = "chart",
) -> Markup:
    content = Markup("").join(parts)
    return _element(
        "svg",
        content,
        viewBox=f"0 0 {width} {height:g}",
        role="img",
        aria_label=label,
        class_=class_,
    )


def _element(tag: str, content: str | Markup = "", **attributes: object) -> Markup:
    """Return an SVG or HTML element; text and attributes are escaped."""
    written = Markup("").join(
        Markup(' {}="{}"').format(name.rstrip("_").replace("aria_", "aria-"), value)
        for name, value in attributes.items()
    )
    return Markup("<{0}{1}>{2}</{0}>").format(Markup(tag), written, content)


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.2f} %"


def _time(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.3g} s"
    return f"{1e3 * seconds:.3g} ms" if seconds >= 1e-3 else f"{1e6 * seconds:.3g} µs"
