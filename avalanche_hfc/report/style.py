"""Colours and sizes of the figures: once for print, once as names that the page's style sheet
resolves, in light and dark.
"""

from dataclasses import dataclass

SERIES = (
    "#0072b2",
    "#d55e00",
    "#00805c",
    "#b3538c",
    "#8a6d00",
    "#3b8fc4",
    "#5c636b",
)  # after Okabe and Ito: all readers can distinguish them
SERIES_DARK = ("#62b0ea", "#f5925a", "#3fc79c", "#e59cc8", "#d9b843", "#9fd3f7", "#b4bcc6")
HEAT = (
    "#fbf7bf", "#eff9bd", "#e1f3b2", "#cdebb4", "#b0e0b6", "#8fd3b9", "#71c8bd", "#52bbc2",
    "#3aaec3", "#2498c1", "#1f80b8", "#2166ac", "#2351a2", "#253c97", "#243089", "#222b80",
)  # fmt: skip
MARKERS = ("o", "s", "^", "D", "v", "P", "X")


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


def heat_colour(fraction: float) -> int:
    """The place in HEAT of an accuracy."""
    return min(int(fraction * len(HEAT)), len(HEAT) - 1)


def style_rules() -> str:
    """The colours of series and heat map as CSS."""
    light = "".join(f"--s{index}:{colour};" for index, colour in enumerate(SERIES))
    dark = "".join(f"--s{index}:{colour};" for index, colour in enumerate(SERIES_DARK))
    heat = "".join(
        f".h{index}{{background:{colour};color:{_ink_on(colour)}}}"
        for index, colour in enumerate(HEAT)
    )
    swatches = "".join(f".c{index}{{--own:var(--s{index})}}" for index in range(len(SERIES)))
    return f":root{{{light}}}@media (prefers-color-scheme:dark){{:root{{{dark}}}}}{heat}{swatches}"


def _ink_on(colour: str) -> str:
    red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return "#12202e" if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else "#fff"
