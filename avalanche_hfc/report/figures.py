"""Panels of curves with bands. matplotlib without pyplot: no window system, no global state."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from io import BytesIO, StringIO
from itertools import count
from typing import NamedTuple

import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from avalanche_hfc._types import Options

LineStyle = str | tuple[int, tuple[float | int, ...]]

SERIES = (
    "#0072b2", "#d55e00", "#00805c", "#b3538c", "#8a6d00",
    "#6a4fb3", "#a3203a", "#00808f", "#7a4a1e", "#5c636b",
)  # after Okabe and Ito, with three more; markers help where hues are close  # fmt: skip
SERIES_DARK = (
    "#62b0ea", "#f5925a", "#3fc79c", "#e59cc8", "#d9b843",
    "#b3a0f2", "#f07f92", "#4cc9d6", "#cf9d6b", "#b4bcc6",
)  # fmt: skip
HEAT = (
    "#fbf7bf", "#eff9bd", "#e1f3b2", "#cdebb4", "#b0e0b6", "#8fd3b9", "#71c8bd", "#52bbc2",
    "#3aaec3", "#2498c1", "#1f80b8", "#2166ac", "#2351a2", "#253c97", "#243089", "#222b80",
)  # fmt: skip
MARKERS = {
    "o": "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z",
    "s": "M-3.6 -3.6h7.2v7.2h-7.2z",
    "^": "M0 -4.4L4.4 3.6H-4.4z",
    "D": "M0 -4.8L4.8 0L0 4.8L-4.8 0z",
    "v": "M0 4.4L4.4 -3.6H-4.4z",
    "P": "M-1.6 -4.6h3.2v3h3v3.2h-3v3h-3.2v-3h-3v-3.2h3z",
    "X": "M-4.4 -2.2L-2.2 -4.4L0 -2.2L2.2 -4.4L4.4 -2.2L2.2 0L4.4 2.2L2.2 4.4L0 2.2L-2.2 4.4"
    "L-4.4 2.2L-2.2 0z",
}  # matplotlib's name, and the same shape as a path around 0 in a box of 12 x 12
LINES: tuple[LineStyle, ...] = ("-", (0, (4, 2)), (0, (1, 1.5)), (0, (5, 1.5, 1, 1.5)), (0, (8, 2)))
METHOD_COLOURS = (
    "hfc", "icarl", "bic", "podnet", "ssil",
    "foster", "afc", "dytox", "herding-replay", "finetune",
    "avalanche-cumulative", "avalanche-icarl", "avalanche-bic", "podnet-cscct", "ncm",
    "baseline", "avalanche-replay", "wa", "frozen-replay", "avalanche-naive",
    "joint", "avalanche-icarl-fixed", "avalanche-bic-fixed", "avalanche-lwf", "avalanche-lwf-fixed",
    "avalanche-ewc", "ranpac", "avalanche-er_ace", "avalanche-der", "avalanche-der-fixed",
    "avalanche-joint", "avalanche-er_ace-fixed",
)  # its index is a method's colour; every tenth has the same hue, another line  # fmt: skip
WITH_LOSSES = 4 * len(SERIES)  # added where GFC or GRD act inside a method: its hue, another line


@dataclass(frozen=True)
class Look:
    """Where a figure is shown (one unit is one pixel there) and its colours."""

    width: int
    columns: int  # panels side by side
    ink: str
    muted: str
    rule: str
    ground: str
    series: tuple[str, ...]
    legend: bool = False  # the page has its own
    font_size: float = 12.5


FOR_PRINT = Look(900, 2, "#1d2329", "#5a646e", "#dfe3e7", "#ffffff", SERIES, legend=True)
NAMES = tuple(f"#0a0b{index:02x}" for index in range(len(SERIES)))
WIDE = Look(1040, 2, "#010203", "#010204", "#010205", "#010206", NAMES)
NARROW = replace(WIDE, width=350, columns=1)
VARIABLES = {
    WIDE.ink: "var(--ink)",
    WIDE.muted: "var(--muted)",
    WIDE.rule: "var(--rule)",
    WIDE.ground: "var(--ground)",
    **{name: f"var(--s{index})" for index, name in enumerate(NAMES)},
}  # colours that no figure has otherwise, and what takes their place in the page
TEXT: Options = {"font.family": "DejaVu Sans", "text.parse_math": False}  # a $ is no formula


class LineKey(NamedTuple):
    """Names a line of a figure.

    Attributes:
        method: Name of the method, as in a recipe.
        losses: `host`, or the losses of HFC that are added to it.
        variant: Tells lines of the same method apart; empty for the first.
    """

    method: str
    losses: str = "host"
    variant: str = ""


def assign_colours(lines: Iterable[LineKey]) -> dict[LineKey, int]:
    """Colour of every line: a method has the same one in every figure.

    Args:
        lines: The lines of a page or figure, in order.

    Returns:
        Line to colour. A method of the user's, or a further variant of one, gets a hue that no
        other line has while there are such.

    Example:
        >>> mine, hfc = LineKey("my.module:Mine"), LineKey("hfc")
        >>> colours = assign_colours([mine, hfc])
        >>> colours[hfc], colours[mine]
        (0, 1)
    """
    lines = list(lines)
    colours = {
        line: METHOD_COLOURS.index(line.method) + WITH_LOSSES * (line.losses != "host")
        for line in lines
        if line.method in METHOD_COLOURS and not line.variant
    }
    for line in lines:
        if line not in colours:
            hues = {colour % len(SERIES) for colour in colours.values()}
            unused = (colour for colour in count() if colour not in colours.values())
            free = next((hue for hue in range(len(SERIES)) if hue not in hues), None)
            colours[line] = next(unused) if free is None else free
    return colours


def marker_of(colour: int) -> str:
    """The marker of a line with this colour, as matplotlib names it. Hues that share a marker are
    far from each other.
    """
    again, hue = divmod(colour, len(SERIES))
    return list(MARKERS)[(hue + 4 * (hue // len(MARKERS)) + 3 * again) % len(MARKERS)]


def line_of(colour: int) -> LineStyle:
    """How a line with this colour is dashed, as matplotlib takes it."""
    return LINES[colour // len(SERIES) % len(LINES)]


def heat_colour(fraction: float) -> int:
    """Index into HEAT of an accuracy in [0, 1]."""
    return min(int(fraction * len(HEAT)), len(HEAT) - 1)


def style_rules() -> str:
    """The colours of series and heat map as CSS."""
    light = "".join(f"--s{index}:{colour};" for index, colour in enumerate(SERIES))
    dark = "".join(f"--s{index}:{colour};" for index, colour in enumerate(SERIES_DARK))
    heat = "".join(
        f".h{index}{{background:{colour};color:{_ink_on(colour)}}}"
        for index, colour in enumerate(HEAT)
    )
    swatches = "".join(f".c{index}{{--series:var(--s{index})}}" for index in range(len(SERIES)))
    return f":root{{{light}}}@media (prefers-color-scheme:dark){{:root{{{dark}}}}}{heat}{swatches}"


def _ink_on(colour: str) -> str:
    red, green, blue = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
    return "#12202e" if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else "#fff"


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
    starts: Sequence[float | int] = ()  # x at which a step begins, as fine lines
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
    font = {"font.size": look.font_size, "axes.titlesize": look.font_size, "text.color": look.ink}
    with rc_context({**TEXT, **font}):
        figure = Figure(
            figsize=(size[0] / 72, size[1] / 72),
            dpi=72,
            facecolor=look.ground if look.legend else "none",
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
        axes.axvline(start, color=look.rule, linewidth=1, zorder=0)
    axes.set_title(panel.title, loc="left", color=look.ink, pad=10)
    axes.set_xlabel(panel.xlabel, color=look.muted, loc="right")
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
    axes.grid(axis="y", color=look.rule, linewidth=1)
    axes.set_axisbelow(True)
    axes.patch.set_visible(False)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(look.muted)
    axes.tick_params(colors=look.muted, length=0, pad=6)


def _plot(axes: Axes, curve: Curve, look: Look) -> None:
    points = curve.points.dropna(subset="mean")
    line: Options = {"label": curve.label, "clip_on": False, "color": look.muted}
    if curve.colour is None:
        axes.plot(points.index, points["mean"], **line, linestyle=(0, (2, 3)), linewidth=1.5)
        return
    hue = look.series[curve.colour % len(look.series)]
    line |= {"color": hue, "linestyle": line_of(curve.colour), "linewidth": 2, "markersize": 5}
    if curve.paper or len(points) <= 25:
        line["marker"] = marker_of(curve.colour)
    if curve.paper:
        line |= {"linestyle": (0, (1, 3)), "linewidth": 1.2, "markersize": 5.5}
        line["markerfacecolor"] = look.ground
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
