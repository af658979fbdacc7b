"""Colours and sizes of the figures: once for print, once as names that the page's style sheet
resolves, in light and dark.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

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
class Palette:
    ink: str
    muted: str
    rule: str
    ground: str
    series: tuple[str, ...]


@dataclass(frozen=True)
class Look:
    """Where a figure is shown: one unit is one pixel there."""

    width: int
    palette: Palette
    columns: int  # panels side by side
    legend: bool  # the page has its own
    font_size: float = 12.5


PRINT = Palette("#1d2329", "#5a646e", "#dfe3e7", "#ffffff", SERIES)
NAMES = Palette(
    "#010203",
    "#010204",
    "#010205",
    "#010206",
    tuple(f"#0a0b{index:02x}" for index in range(len(SERIES))),
)
VARIABLES = {
    NAMES.ink: "var(--ink)",
    NAMES.muted: "var(--muted)",
    NAMES.rule: "var(--rule)",
    NAMES.ground: "var(--ground)",
    **{name: f"var(--s{index})" for index, name in enumerate(NAMES.series)},
}  # colours that no figure has otherwise, and what takes their place in the page
WIDE = Look(1040, NAMES, 2, legend=False)
NARROW = Look(350, NAMES, 1, legend=False)
FOR_PRINT = Look(900, PRINT, 2, legend=True)


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
