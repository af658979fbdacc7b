"""Fonts for class names in any script: matplotlib warns about characters that its font lacks."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from matplotlib.font_manager import fontManager, get_font

from avalanche_hfc._types import Options

FIRST = "DejaVu Sans"  # comes with matplotlib


def text_settings(texts: Iterable[str], size: float) -> Options:
    """matplotlib's settings to draw texts as they are.

    Args:
        texts: What is drawn.
        size: Of the letters, in points.

    Returns:
        Settings for `matplotlib.rc_context`: a family with fallbacks for the scripts of `texts`;
        dollar signs are not formulas.
    """
    return {
        "font.size": size,
        "axes.titlesize": size,
        "font.family": [FIRST, *dict.fromkeys(filter(None, map(_family_with, _rare(texts))))],
        "text.parse_math": False,
    }


def _rare(texts: Iterable[str]) -> list[str]:
    """The characters that the first font does not have."""
    known = _characters(_path_of(FIRST))
    return [sign for sign in dict.fromkeys("".join(texts)) if ord(sign) not in known]


def _path_of(family: str) -> str:
    return next(entry.fname for entry in fontManager.ttflist if entry.name == family)


@cache
def _family_with(sign: str) -> str | None:
    for entry in fontManager.ttflist:
        if Path(entry.fname).is_file() and ord(sign) in _characters(entry.fname):
            return entry.name
    return None


@cache
def _characters(path: str) -> frozenset[int]:
    return frozenset(get_font(path).get_charmap())
