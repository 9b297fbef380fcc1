"""The pictures of a report, as SVG whose colours the style sheet decides.

All are drawn 360 units wide, so that text has its natural size on a phone; wider screens put
several side by side.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from markupsafe import Markup

from marginpursuit.experiments.compare import Course, MethodResult

WIDTH = 360
_LEFT, _RIGHT, _BOTTOM = 40, 10, 34  # room for the labels of the axes
_ROW = 34  # of a method in the chart of errors
_PANEL = 200  # height of the panels with margins
_PLOT = WIDTH - _LEFT - _RIGHT
_CALIBRATION = 150


def error_chart(methods: Sequence[MethodResult]) -> Markup:
    """Draw the test error of each method with its interval, one row a method."""
    top = max(method.error_interval[1] for method in methods)
    ticks = _ticks(0.0, 100 * top)
    height = _ROW * len(methods)

    def x(error: float) -> float:
        return 14 + 100 * error / ticks[-1] * (WIDTH - 32)

    parts = [_grid_x([(x(tick / 100), f"{tick:g} %") for tick in ticks], height)]
    for number, method in enumerate(methods):
        low, high = method.error_interval
        y = _ROW * number + 24
        title = f"{method.name}: {_percent(method.error)} ({_percent(low)} to {_percent(high)})"
        marks = (
            _element("text", f"{number + 1}  {method.name}", x=6, y=y - 9, class_="name")
            + _element("path", d=f"M{x(low):.1f} {y}H{x(high):.1f}", class_="whisker")
            + _element("circle", cx=f"{x(method.error):.1f}", cy=y, r=4, class_="dot")
        )
        parts.append(_element("g", _element("title", title) + marks))
    return _svg(parts, height + _BOTTOM, "Test error with intervals, by method")


def cost_chart(methods: Sequence[MethodResult]) -> Markup:
    """Draw the test error of each method against the time of a fit, which is on a log scale."""
    height = 260
    errors = [100 * method.error for method in methods]
    times = [math.log10(max(method.seconds, 1e-6)) for method in methods]
    rows = _ticks(0.0, max(errors) or 1.0)
    first, last = math.floor(min(times)), max(math.ceil(max(times)), math.floor(min(times)) + 1)

    def x(time: float) -> float:
        return _LEFT + 12 + (time - first) / (last - first) * (_PLOT - 24)

    def y(error: float) -> float:
        return 14 + (1 - error / rows[-1]) * (height - 14)

    columns = [(x(power), _time(10.0**power)) for power in range(first, last + 1)]
    parts = [
        _grid_x(columns, height, "seconds to fit"),
        _grid_y([(y(row), f"{row:g} %") for row in rows]),
    ]
    placed: list[tuple[float, float]] = []
    for number, (method, error, time) in enumerate(zip(methods, errors, times, strict=True)):
        spot = _free((x(time), y(error)), placed)
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
    return _svg(parts, height + _BOTTOM, "Time of a fit against test error, by method")


def calibration_chart(bins: Sequence[tuple[float, float, int]]) -> Markup:
    """Draw frequencies against probabilities; the area of a dot is the share of its bin."""
    size, left = _CALIBRATION - 30, 28
    total = sum(count for _, _, count in bins)

    def point(probability: float, frequency: float) -> str:
        return f"{left + probability * size:.1f} {6 + (1 - frequency) * size:.1f}"

    line = "M" + "L".join(point(mean, frequency) for mean, frequency, _ in bins)
    parts = [
        _element("path", d=f"M{left} 6V{6 + size}H{left + size}", class_="axis"),
        _element("path", d=f"M{point(0, 0)}L{point(1, 1)}", class_="ideal"),
        _element("path", d=line, class_="curve"),
    ]
    for value in (0, 0.5, 1):
        x, y = left + value * size, 6 + (1 - value) * size
        parts.append(_element("text", f"{value:g}", x=x, y=size + 20, class_="tick middle"))
        parts.append(_element("text", f"{value:g}", x=left - 5, y=y + 4, class_="tick end"))
    for mean, frequency, count in bins:
        across, down = point(mean, frequency).split()
        radius = 1.5 + 7 * math.sqrt(count / total)
        title = f"probability {mean:.2f}, frequency {frequency:.2f}, {count} samples"
        dot = _element("circle", _element("title", title), cx=across, cy=down, r=f"{radius:.1f}")
        parts.append(dot)
    return _svg(
        parts, _CALIBRATION, "Frequency against probability", WIDTH // 2 - 24, "calibration"
    )


def margin_panels(course: Course) -> Markup:
    """Draw the margins at the first and the last checkpoint; the slider then moves the second."""
    drawn = course_frames(course)
    ticks = Markup("").join(
        _element("text", text, x=x, y=_PANEL + 14, class_="tick middle")
        for x, text in drawn["ticks"]
    )
    panels = []
    for when, frame in (("before", drawn["frames"][0]), ("now", drawn["frames"][-1])):
        shapes = [
            *(_element("path", d=frame[shape], class_=shape) for shape in ("wrong", "right")),
            _element("path", d=drawn["level"], class_="level"),
            _element("path", d=frame["location"], class_="location"),
            _element("path", d=f"M0 {_PANEL}H{WIDTH}", class_="axis"),
            _element("g", ticks, class_="ticks"),
        ]
        svg = _svg(shapes, _PANEL + 20, "Distribution of the held-out margins")
        caption = _element("figcaption", frame["caption"], aria_live="polite")
        panels.append(_element("figure", caption + svg, class_=when))
    return Markup("").join(panels)


def course_frames(course: Course) -> dict[str, Any]:
    """Return the shapes of the panels at each checkpoint of a course, and its axis."""
    low, high = course.edges[0], course.edges[-1]

    def x(margin: float) -> float:
        return (margin - low) / (high - low) * WIDTH

    # The first checkpoints are narrow peaks: they may be cut, so that the last fills the picture.
    tallest = 1.6 * max(course.checkpoints[-1].density)
    zero = min(range(len(course.edges)), key=lambda number: abs(course.edges[number]))
    frames = []
    for point in course.checkpoints:
        heights = [round(min(1.0, share / tallest) * (_PANEL - 8)) for share in point.density]
        frames.append(
            {
                "caption": (
                    f"after {point.steps} {'step' if point.steps == 1 else 'steps'}: test error "
                    f"{_percent(point.error)}, location {point.location:.2f}"
                ),
                "wrong": _stairs(course.edges[: zero + 1], heights[:zero], x),
                "right": _stairs(course.edges[zero:], heights[zero:], x),
                "location": _upright(x(point.location)),
            }
        )
    ticks = [(round(x(tick), 1), f"{tick:g}") for tick in _ticks(low, high) if low <= tick <= high]
    return {"frames": frames, "level": _upright(x(course.level)), "ticks": ticks}


def _stairs(edges: Sequence[float], heights: Sequence[int], x: Callable[[float], float]) -> str:
    """Return the outline of a histogram as a path."""
    if not heights:
        return ""
    steps = "".join(
        f"V{_PANEL - height}H{x(edge):.1f}" for height, edge in zip(heights, edges[1:], strict=True)
    )
    return f"M{x(edges[0]):.1f} {_PANEL}{steps}V{_PANEL}Z"


def _upright(x: float) -> str:
    return f"M{x:.1f} 0V{_PANEL}" if 0 <= x <= WIDTH else ""


def _free(spot: tuple[float, float], placed: list[tuple[float, float]]) -> tuple[float, float]:
    """Return a place near a point where a badge covers no other: on ever wider circles around."""
    for turn in range(200):
        radius, angle = 14 + turn * 0.6, -math.pi / 2 + turn * 0.8
        x, y = spot[0] + radius * math.cos(angle), spot[1] + radius * math.sin(angle)
        inside = _LEFT + 9 <= x <= WIDTH - 9 and 9 <= y <= 255
        if inside and all(math.hypot(x - a, y - b) > 19 for a, b in placed):
            return x, y
    return spot


def _ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Return round numbers from at most `low` to at least `high`."""
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
    name = _element("text", label, x=WIDTH - 4, y=height + 30, class_="tick end")
    return Markup("").join([*lines, name if label else Markup("")])


def _grid_y(ticks: Sequence[tuple[float, str]]) -> Markup:
    return Markup("").join(
        _element("path", d=f"M{_LEFT} {y:.1f}H{WIDTH}", class_="grid")
        + _element("text", text, x=_LEFT - 6, y=f"{y + 4:.1f}", class_="tick end")
        for y, text in ticks
    )


def _svg(
    parts: Sequence[Markup], height: float, label: str, width: float = WIDTH, class_: str = "chart"
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
    """Return an element; text and attributes are escaped."""
    written = Markup("").join(
        Markup(' {}="{}"').format(name.rstrip("_").replace("aria_", "aria-"), value)
        for name, value in attributes.items()
    )
    return Markup("<{0}{1}>{2}</{0}>").format(Markup(tag), written, content)


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def _time(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.3g} s"
    return f"{1e3 * seconds:.3g} ms" if seconds >= 1e-3 else f"{1e6 * seconds:.3g} µs"
