"""The look of all figures: canvas, axes, legends, curves of policies; and figures as files."""

import io
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from mebandit import checks
from mebandit.reports.colours import colours_of
from mebandit.runtime.escaping import in_figure
from mebandit.runtime.files import whole_file

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure
    import pandas as pd


UNDATED = {"png": ("Software",), "svg": ("Date", "Creator"), "pdf": ("CreationDate", "Creator", "Producer")}
"""what a file would say of its making, by kind"""


class Picture(NamedTuple):
    """A figure as the contents of two files."""

    png: bytes
    svg: bytes


def canvas(width: float, height: float) -> "matplotlib.figure.Figure":
    """An empty figure of a size in inches, whose layout fits its contents."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def plain(axes: "matplotlib.axes.Axes", *, grid: Literal["both", "x", "y"] = "both") -> None:
    """No frame at the top and the right, and a pale grid."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis=grid, alpha=0.25)
    axes.set_axisbelow(True)


def legend_beside(axes: "matplotlib.axes.Axes") -> None:
    """A legend to the right of the axes."""
    axes.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))


def legend_above(figure: "matplotlib.figure.Figure", *, columns: int) -> None:
    """One legend above all axes of a figure, with the lines of the first axes."""
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=columns, frameon=False, fontsize=9)


def draw_policies(axes: "matplotlib.axes.Axes", own: "pd.DataFrame", *, references: Collection[str] = (), log_scale: bool = False) -> None:
    """Draw a line in the colour of each policy, with a band of two standard errors.

    Args:
        axes: Where to draw.
        own: A table with the columns policy, time, mean and std_error.
        references: Policies that learn nothing; their lines are grey and dashed.
        log_scale: Whether the vertical axis is logarithmic.
    """
    dashes = iter([(1, 1.5), (4, 2), (7, 2), (7, 2, 1, 2)])
    colours = colours_of(str(name) for name in own["policy"].unique() if name not in references)
    for policy, part in own.groupby("policy", sort=False):
        time, mean, se = (part[c].to_numpy() for c in ("time", "mean", "std_error"))
        if not np.isfinite(mean).any():
            continue
        if policy in references:
            axes.plot(time, mean, label=in_figure(policy), color="0.45", linestyle=(0, next(dashes)), linewidth=1.3)
        else:
            axes.plot(time, mean, label=in_figure(policy), color=colours[str(policy)], linewidth=2)
            low, high = (mean * np.exp(-2 * se / mean), mean * np.exp(2 * se / mean)) if log_scale else (mean - 2 * se, mean + 2 * se)
            axes.fill_between(time, low, high, color=colours[str(policy)], alpha=0.2, linewidth=0)
    if log_scale:
        axes.set_yscale("log")
    axes.set_xlabel("round")
    plain(axes)


def save_figure(figure: "matplotlib.figure.Figure", path: str | Path) -> None:
    """Save a figure in the format that the file's ending names. The file is written in full or not at all."""
    kinds = figure.canvas.get_supported_filetypes()
    kind = checks.path("path", path).suffix[1:].lower() or "png"
    if kind not in kinds:
        checks.refuse("path", f"end in one of {', '.join(f'.{known}' for known in kinds)}", str(path))
    with whole_file(path) as file:
        figure.savefig(file, format=kind, dpi=150)


def picture(figure: "matplotlib.figure.Figure") -> Picture:
    """A figure as PNG and as SVG."""
    return Picture(_saved(figure, "png"), as_svg(figure))


def as_pdf(figure: "matplotlib.figure.Figure") -> bytes:
    """A figure as PDF, for print."""
    return _saved(figure, "pdf")


def as_svg(figure: "matplotlib.figure.Figure") -> bytes:
    """A figure as SVG."""
    return _saved(figure, "svg")


def _saved(figure: "matplotlib.figure.Figure", kind: str) -> bytes:
    """A figure as the bytes of a file: the same bytes for the same figure. Its layout is computed the first time, and then kept."""
    from matplotlib import rc_context

    buffer = io.BytesIO()
    with rc_context({"svg.hashsalt": "mebandit"}):
        figure.savefig(buffer, format=kind, dpi=110, metadata=dict.fromkeys(UNDATED[kind]))
    figure.set_layout_engine("none")
    return buffer.getvalue()
