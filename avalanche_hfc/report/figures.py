"""Panels of curves with bands. matplotlib without pyplot: no window system, no global state."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from io import BytesIO, StringIO

import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from avalanche_hfc._types import Options
from avalanche_hfc.report.fonts import text_settings
from avalanche_hfc.report.style import VARIABLES, Look, line_of, marker_of


@dataclass(frozen=True)
class Curve:
    """`points`: columns mean and std (nan: no band), indexed by x. `colour` as `assign_colours`
    gives it; None for a reference line that is no recipe's.
    """

    label: str
    points: pd.DataFrame
    colour: int | None
    paper: bool = False  # the paper's own numbers: hollow marks, no line to be confused with ours


@dataclass(frozen=True)
class Panel:
    title: str
    curves: Sequence[Curve]
    xlabel: str = "step"
    ticks: Sequence[tuple[float | int, str]] = ()
    starts: Sequence[float | int] = field(default=())  # x at which a step begins, as fine lines
    span: tuple[float | int, float | int] | None = None  # of x, also where a curve begins later
    limits: tuple[float | int | None, float | int | None] = (
        0,
        None,
    )  # of y; where a curve goes below, so does the panel


def draw(panels: Sequence[Panel], look: Look, height: int = 300) -> Figure:
    """`height` is that of one panel, in pixels."""
    columns = 3 if len(panels) == 3 and look.columns > 1 else min(look.columns, len(panels))
    rows = -(-len(panels) // columns)
    labels = (
        list(dict.fromkeys(curve.label for panel in panels for curve in panel.curves))
        if look.legend
        else []
    )
    beside = _legend_columns(labels, look)
    legend = 14 + 22 * -(-len(labels) // beside) if labels else 0
    size = (look.width, rows * height + legend)
    ticks = 62 if any("\n" in text for panel in panels for _, text in panel.ticks) else 46
    texts = text_settings([*labels, *(panel.title for panel in panels)], look.font_size)
    with rc_context({**texts, "text.color": look.palette.ink}):
        figure = Figure(
            figsize=(size[0] / 72, size[1] / 72),
            dpi=72,
            facecolor=look.palette.ground if look.legend else "none",
        )
        grid = list(
            figure.subplots(
                rows,
                columns,
                squeeze=False,
                gridspec_kw=_margins(size, rows, columns, legend, ticks),
            ).flatten()
        )
        for axes, panel in zip(grid, panels, strict=False):
            _fill(axes, panel, look)
        for axes in grid[len(panels) :]:
            axes.remove()
        if look.legend:
            _legend(figure, grid[: len(panels)], beside)
    return figure


def _legend_columns(labels: Sequence[str], look: Look) -> int:
    """How many labels fit side by side, by the number of letters: text is not measured."""
    widest = 70 + 0.6 * look.font_size * max(map(len, labels), default=0)
    return max(1, min(len(labels), int(look.width / widest)))


def _margins(
    size: tuple[int, int], rows: int, columns: int, below: int, bottom: int
) -> dict[str, float]:
    """Room for ticks and headings in pixels. Fixed, not measured: a layout that measures text takes
    most of a figure's time.
    """
    left, right, top, beside = 46, 8, 34, 62
    (width, height), between = size, top + bottom
    wide = (width - left - right - (columns - 1) * beside) / columns
    high = (height - top - bottom - below - (rows - 1) * between) / rows
    edges = {
        "left": left / width,
        "right": 1 - right / width,
        "top": 1 - top / height,
        "bottom": (bottom + below) / height,
    }
    return {**edges, "wspace": beside / wide, "hspace": between / high}


def _fill(axes: Axes, panel: Panel, look: Look) -> None:
    for curve in panel.curves:
        _plot(axes, curve, look)
    for start in panel.starts:
        axes.axvline(start, color=look.palette.rule, linewidth=1, zorder=0)
    axes.set_title(panel.title, loc="left", color=look.palette.ink, pad=10)
    axes.set_xlabel(panel.xlabel, color=look.palette.muted, loc="right")
    low, high = panel.limits
    lowest = min((curve.points["mean"].min() for curve in panel.curves), default=0)
    if low is None or lowest >= low:
        axes.set_ylim(low, high)
    else:
        axes.set_ylim(top=max(low, axes.get_ylim()[1]) if high is None else high)
    if panel.span is not None:
        margin = 0.04 * (panel.span[1] - panel.span[0]) or 0.5
        axes.set_xlim(panel.span[0] - margin, panel.span[1] + margin)
    if panel.ticks:
        axes.set_xticks(
            [position for position, _ in panel.ticks], [text for _, text in panel.ticks]
        )
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    axes.grid(axis="y", color=look.palette.rule, linewidth=1)
    axes.set_axisbelow(True)
    axes.patch.set_visible(False)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(look.palette.muted)
    axes.tick_params(colors=look.palette.muted, length=0, pad=6)


def _plot(axes: Axes, curve: Curve, look: Look) -> None:
    points = curve.points.dropna(subset="mean")
    line: Options = {"label": curve.label, "clip_on": False, "color": look.palette.muted}
    if curve.colour is None:
        axes.plot(points.index, points["mean"], **line, linestyle=(0, (2, 3)), linewidth=1.5)
        return
    hue = look.palette.series[curve.colour % len(look.palette.series)]
    line |= {"color": hue, "linestyle": line_of(curve.colour), "linewidth": 2, "markersize": 5}
    if curve.paper or len(points) <= 25:
        line["marker"] = marker_of(curve.colour)
    if curve.paper:
        line |= {"linestyle": (0, (1, 3)), "linewidth": 1.2, "markersize": 5.5}
        line["markerfacecolor"] = look.palette.ground
    if len(points) == 1:
        line["linestyle"] = "none"  # in the legend, too: a point of a scatter is no line
    axes.plot(points.index, points["mean"], **line)
    band = points.dropna(subset="std")
    if len(band):
        axes.fill_between(
            band.index,
            band["mean"] - band["std"],
            band["mean"] + band["std"],
            color=hue,
            alpha=0.18,
            linewidth=0,
        )


def _legend(figure: Figure, grid: Sequence[Axes], columns: int) -> None:
    handles = {
        label: handle
        for axes in grid
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    if handles:
        figure.legend(
            handles.values(),
            handles.keys(),
            loc="lower left",
            bbox_to_anchor=(0, 0),
            frameon=False,
            ncols=columns,
        )


def as_png(figure: Figure) -> bytes:
    picture = BytesIO()
    figure.savefig(picture, format="png", dpi=144)
    return picture.getvalue()


def as_svg(figure: Figure, name: str, alt: str) -> str:
    """An svg element to stand in a page: ids of its own, the page's font and colours, as wide as
    its place. `alt` is HTML already.
    """
    picture = StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(
            picture,
            format="svg",
            metadata={"Date": None, "Creator": None, "Format": None, "Type": None},
        )
    text = picture.getvalue()
    text = text[text.index("<svg") :]
    box = re.search(r'viewBox="([^"]+)"', text)
    body = text[text.index(">") + 1 :]
    body = re.sub(
        r"<metadata>.*?</metadata>|<defs>\s*<style.*?</style>\s*</defs>", "", body, flags=re.DOTALL
    )
    body = re.sub(r'\bid="', f'id="{name}-', body)
    body = re.sub(r'(url\(#|href="#)', rf"\g<1>{name}-", body)
    body = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font: \1px var(--sans)", body)
    body = re.sub(r"font-size: ([\d.]+)px; font-family: [^;\"]*", r"font: \1px var(--sans)", body)
    for colour, variable in VARIABLES.items():
        body = body.replace(colour, variable)
    body = re.sub(r"\n\s*", "\n", body)
    return (
        f'<svg class="plot" viewBox="{box.group(1) if box else ""}" role="img" '
        f'aria-label="{alt}">{body}'
    )
