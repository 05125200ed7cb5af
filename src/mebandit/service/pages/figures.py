"""Figures of the dashboard as SVG: drawn by hand, so that their colours follow the page, with words for those who cannot see them."""

from collections.abc import Mapping, Sequence
from datetime import date
from math import ceil, floor, isfinite, log10
from typing import Any, NamedTuple

from markupsafe import Markup, escape

WIDTH, HEIGHT = 640, 220
LEFT, RIGHT, TOP, BOTTOM = 52, 14, 12, 30
MODES = "learned", "warmup", "fallback", "external", "unavailable"
"""in the order in which they are stacked; the style sheet has a colour for each"""


class Frame(NamedTuple):
    """The axes of a figure."""

    x: tuple[float, float]
    y: tuple[float, float]

    def across(self, value: float) -> float:
        """Where a value is from left to right."""
        low, high = self.x
        return LEFT + (WIDTH - LEFT - RIGHT) * (value - low) / ((high - low) or 1.0)

    def up(self, value: float) -> float:
        """Where a value is from top to bottom."""
        low, high = self.y
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (value - low) / ((high - low) or 1.0)

    def axes(self, x_name: str, y_ticks: Sequence[float], x_ticks: Sequence[tuple[float, str]]) -> str:
        """Lines and labels."""
        parts = []
        for tick in y_ticks:
            y = self.up(tick)
            parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
            parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:,.6g}</text>')
        for at, label in x_ticks:
            parts.append(f'<text x="{self.across(at):.1f}" y="{HEIGHT - 12}" text-anchor="middle">{escape(label)}</text>')
        parts.append(f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 1}" text-anchor="end" class="pale">{escape(x_name)}</text>')
        return "".join(parts)


def ticks(low: float, high: float, about: int = 4) -> list[float]:
    """Round numbers between two."""
    if not high > low:
        return [low]
    raw = (high - low) / about
    size = 10.0 ** floor(log10(raw))
    step = next(factor * size for factor in (1, 2, 5, 10) if factor * size >= raw)
    return [round(step * i, 12) for i in range(ceil(low / step), floor(high / step) + 1)]


def svg(inner: str, title: str, said: str) -> Markup:
    """A figure with a title and a description."""
    return Markup(
        f'<svg class="figure" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}. {escape(said)}">'
        f"<title>{escape(title)}</title><desc>{escape(said)}</desc>{inner}</svg>"
    )


def by_day(days: Mapping[str, Mapping[str, int]]) -> Markup | None:
    """Bars: decisions of each day by mode.

    Args:
        days: counts by day (2026-03-01) and mode.
    """
    if not days:
        return None
    first = date.fromisoformat(min(days)).toordinal()
    last = max(date.fromisoformat(max(days)).toordinal(), first + 6)
    most = max(sum(each.values()) for each in days.values())
    frame = Frame((first - 0.5, last + 0.5), (0.0, 1.08 * most))
    parts, half = [], 0.4 * (WIDTH - LEFT - RIGHT) / (last - first + 1)
    for day, counts in sorted(days.items()):
        x, base = frame.across(date.fromisoformat(day).toordinal()), 0
        for mode in MODES:
            n = counts.get(mode, 0)
            if n:
                top, bottom = frame.up(base + n), frame.up(base)
                size = f'x="{x - half:.1f}" y="{top:.1f}" width="{2 * half:.1f}" height="{max(bottom - top, 0.5):.1f}"'
                parts.append(f'<rect class="mode-{mode}" {size}><title>{escape(day)}: {n:,} {mode}</title></rect>')
                base += n
    names = [(float(n), date.fromordinal(n).strftime("%d %b")) for n in range(last, first - 1, -max((last - first) // 6, 1))]
    total = sum(sum(each.values()) for each in days.values())
    said = f"{total:,} decisions in {len(days)} days; the most on one day were {most:,}. The table below has the numbers."
    axes = frame.axes("day, UTC", [tick for tick in ticks(0, most) if tick == int(tick)], names)
    return svg(axes + "".join(parts), "Decisions by day and mode", said)


def over_time(rows: Sequence[Mapping[str, Any]], action: str, what: str) -> Markup | None:
    """Lines with bands: an effect over the rounds learned, corrected beside uncorrected.

    Args:
        rows: what was estimated at each fit: `learned` and `body`, see `checks.learned`.
        action: whose effect.
        what: the coefficient.
    """
    found: dict[str, list[tuple[float, float, float, float]]] = {}
    for row in rows:
        for each in row["body"]:
            if each["action"] == action and each["what"] == what and each["value"] is not None:
                low, high = (each["value"] if each[end] is None else each[end] for end in ("low", "high"))
                found.setdefault(each["method"], []).append((float(row["learned"]), each["value"], low, high))
    if not found:
        return None
    values = [p[1] for points in found.values() for p in points]
    ends = [end for p in next(iter(found.values()))[len(next(iter(found.values()))) // 4 :] for end in p[2:]]
    low, high = min([*values, *ends, 0.0]), max([*values, *ends, 0.0])
    spread = (high - low) or 1.0
    frame = Frame(_span([p[0] for points in found.values() for p in points]), (low - 0.05 * spread, high + 0.05 * spread))
    parts = [f'<line class="zero" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{frame.up(0):.1f}" y2="{frame.up(0):.1f}"/>']
    for method, points in found.items():
        if method != "ridge":
            there = [(frame.across(n), frame.up(_within(high, frame))) for n, _, _, high in points]
            back = [(frame.across(n), frame.up(_within(low, frame))) for n, _, low, _ in reversed(points)]
            parts.append(f'<polygon class="band line-{method}" points="{_path([*there, *back])}"/>')
        line = _path([(frame.across(n), frame.up(_within(value, frame))) for n, value, _, _ in points])
        parts.append(f'<polyline class="line line-{method}" points="{line}"/>')
        parts += [f'<circle class="line-{method}" cx="{x}" cy="{y}" r="2.5"/>' for x, y in (p.split(",") for p in line.split()[-1:])]
    last = {method: points[-1] for method, points in found.items()}
    said = "; ".join(
        f"{'corrected' if m != 'ridge' else 'uncorrected'} {p[1]:.3g}, interval {p[2]:.3g} to {p[3]:.3g}" for m, p in last.items()
    )
    x_ticks = [(tick, f"{tick:,.0f}") for tick in ticks(*frame.x, 5)]
    return svg(frame.axes("rounds learned", ticks(*frame.y), x_ticks) + "".join(parts), f"Effect of {action}, {what}", f"Now {said}.")


def _span(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    return (low, high) if high > low else (low - 1, high + 1)


def _within(value: float, frame: Frame) -> float:
    return min(max(value, frame.y[0]), frame.y[1])


def _path(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def against_truth(pairs: Sequence[tuple[float, float]], feature: str, sd: float) -> Markup | None:
    """Dots: predictions against the truths that were told later, with the line on which both are equal.

    Args:
        pairs: (truth, prediction).
        feature: its name.
        sd: the told standard deviation of the error.
    """
    pairs = [pair for pair in pairs if all(map(isfinite, pair))]
    if not pairs:
        return None
    span = _span([value for pair in pairs for value in pair])
    frame = Frame(span, span)
    parts = [_line(frame, span, shift, "grid" if shift else "zero") for shift in (-1.96 * sd, 0.0, 1.96 * sd)]
    parts += [f'<circle class="dot" cx="{frame.across(x):.1f}" cy="{frame.up(y):.1f}" r="3"/>' for x, y in pairs]
    inside = sum(abs(y - x) <= 1.96 * sd for x, y in pairs) / len(pairs)
    said = f"{inside:.0%} of {len(pairs)} predictions are within 1.96 told standard deviations of the truth; 95 % would be right."
    x_ticks = [(tick, f"{tick:g}") for tick in ticks(*span, 5)]
    return svg(frame.axes("truth", ticks(*span), x_ticks) + "".join(parts), f"Predictions of {feature} against truths", said)


def _line(frame: Frame, span: tuple[float, float], shift: float, kind: str) -> str:
    """The line y = x + shift, cut off at the frame."""
    low, high = max(span[0], span[0] - shift), min(span[1], span[1] - shift)
    if low >= high:
        return ""
    ends = [(frame.across(x), frame.up(x + shift)) for x in (low, high)]
    return f'<polyline class="{kind}" points="{_path(ends)}"/>'
