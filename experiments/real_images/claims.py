"""What the rows say about the paper's claims: differences seed by seed, and the sentences that
follow from them.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pandas as pd

from avalanche_hfc.recipes.options import UPPER_BOUNDS
from avalanche_hfc.recipes.tables import EIGHT, FH_ROWS
from avalanche_hfc.report.differences import TEST, Difference
from avalanche_hfc.tasks.table import row_name
from real_images.tables import ABLATION, COMPARISON, PLUG_AND_PLAY, PROTOCOLS, Shown

ALL_PARTS = "baseline+tsa+hfc"  # HFC with the values that were tuned for the baseline
PARTS = (  # what is added, to what, by the rows of the table
    ("TSA", "baseline", "baseline+tsa"),
    ("L_FC", "baseline+tsa", "baseline+tsa+gfc"),
    ("L_RD", "baseline+tsa+gfc", ALL_PARTS),
)
RULE = (
    "A claim is confirmed where the difference has the sign that the paper claims and is one by "
    f"{TEST}, over seeds. In brackets: the difference ± its standard error, in points of accuracy "
    "or FH × 1000. Of forty pairs without a difference, one is expected to be confirmed by chance. "
    "Seeds differ in training only: the test images are the same."
)


class Pair(NamedTuple):
    """Two recipes that are compared, and how the second is named."""

    label: str
    first: str
    second: str


class Claim(NamedTuple):
    """What the paper says of some pairs: the first has more (1) or less (-1) of a measure."""

    text: str
    pairs: Sequence[Pair]
    column: str = "average"
    sign: int = 1
    num_seeds: int = COMPARISON.num_seeds


def recipes_of(shown: Shown) -> dict[tuple, str]:
    """(row with its losses, base fraction, number of steps) to the recipe."""
    return {
        (row_name(cell), cell.base_fraction, cell.num_steps): name for cell, name in shown.cells
    }


def over(
    shown: Shown, rows: Iterable[str], protocol: tuple = (0, 5), first: str = "hfc"
) -> list[Pair]:
    """HFC with each of these rows; `first` is the row that stands for HFC."""
    names = recipes_of(shown)
    return [
        Pair(f"`{row}`", names[first, *protocol], names[row, *protocol])
        for row in rows
        if (row, *protocol) in names
    ]


def with_losses(rows: Iterable[str]) -> list[Pair]:
    """Each of these methods with both losses, and without."""
    names = recipes_of(PLUG_AND_PLAY)
    return [Pair(f"`{row}`", names[f"{row}+hfc", 0, 5], names[row, 0, 5]) for row in rows]


def parts() -> list[Pair]:
    names = recipes_of(ABLATION)
    return [
        Pair(f"{part} added to `{to}`", names[becomes, 0, 5], names[to, 0, 5])
        for part, to, becomes in PARTS
    ]


CLAIMS = (
    Claim("HFC has a higher average than", over(COMPARISON, EIGHT)),
    Claim(
        "In ten steps HFC has a higher average than",
        over(PROTOCOLS, EIGHT, (0, 10)),
        num_seeds=PROTOCOLS.num_seeds,
    ),
    Claim(
        "After a base step with half of the classes HFC has a higher average than",
        over(PROTOCOLS, EIGHT, (0.5, 5)),
        num_seeds=PROTOCOLS.num_seeds,
    ),
    Claim("A part of HFC raises the average:", parts()),
    Claim("Both losses raise the average of", with_losses(EIGHT)),
    Claim("HFC has a lower FH than", over(COMPARISON, FH_ROWS[:-1]), "fh", -1),
    Claim(
        "With the values of `baseline`, HFC has a lower FH than",
        over(ABLATION, FH_ROWS[:-1], first=ALL_PARTS),
        "fh",
        -1,
    ),
)


def difference(runs: pd.DataFrame, pair: Pair, column: str, num_seeds: int) -> Difference | None:
    """The difference of a pair over this number of seeds; None where one of them has not got all:
    nothing is said of a part of the seeds.
    """
    values = runs.set_index(["recipe", "seed"])[column]
    known = set(values.index.get_level_values("recipe"))
    if not {pair.first, pair.second} <= known:
        return None
    added = (values.loc[pair.first] - values.loc[pair.second]).dropna()
    if len(added) < num_seeds:
        return None
    return Difference.of(added)


def told(pair: Pair, found: Difference, why: str = "") -> str:
    """A pair with its difference, and a word on it, as in a list."""
    return f"{pair.label} ({found.mean:+.1f} ± {found.error:.1f}{why})"


def judged(runs: pd.DataFrame, claim: Claim) -> tuple[list[str], list[str], list[str]]:
    """The pairs that confirm a claim, those that do not, and those without rows; in words."""
    runs = runs[runs["seed"] < claim.num_seeds]
    confirmed, refused, unknown = [], [], []
    for pair in claim.pairs:
        found = difference(runs, pair, claim.column, claim.num_seeds)
        if found is None:
            unknown.append(pair.label)
        elif found.sign == claim.sign:
            confirmed.append(told(pair, found))
        else:
            why = ", no difference found" if found.none else ", the opposite"
            refused.append(told(pair, found, why))
    return confirmed, refused, unknown


def verdict(runs: pd.DataFrame) -> str:
    """Three lists as markdown: claims confirmed, not confirmed and not tested."""
    lists: tuple[list[str], list[str], list[str]] = ([], [], [])
    for claim in CLAIMS:
        for lines, found in zip(lists, judged(runs, claim), strict=True):
            if found:
                lines.append(f"- {claim.text} {joined(found)}.")
    titles = ("Confirmed", "Not confirmed", "Not tested: rows are missing")
    return f"{RULE}\n\n" + "\n".join(
        "\n".join([f"**{title}**", "", *(lines or ["- Nothing."]), ""])
        for title, lines in zip(titles, lists, strict=True)
        if lines or title != titles[2]
    )


def count(runs: pd.DataFrame) -> tuple[int, int]:
    """How many of the comparisons that were made confirm a claim, and how many were made."""
    found = [judged(runs, claim) for claim in CLAIMS]
    confirmed = sum(len(own[0]) for own in found)
    return confirmed, confirmed + sum(len(own[1]) for own in found)


BRACKETS = "In brackets: the average of HFC minus theirs, seed by seed."


class Standing(NamedTuple):
    """Where HFC stands among the rows of a table: clauses of a sentence, empty where there is
    nothing to say.
    """

    first: str
    equal: str
    behind: str

    def __str__(self) -> str:
        said = "; ".join(filter(None, self))
        return f"{said}. {BRACKETS}" if said else ""


def standing(runs: pd.DataFrame, shown: Shown, protocol: tuple = (0, 5)) -> Standing:
    """Compare HFC with every row of a table under a protocol, upper bounds apart; nothing is said
    before all of them have all seeds.
    """
    rows = [
        row for row, *own in recipes_of(shown) if tuple(own) == protocol and row not in UPPER_BOUNDS
    ]
    pairs = over(shown, [row for row in rows if row != "hfc"], protocol)
    found = [
        (pair, own)
        for pair in pairs
        if (own := difference(runs, pair, "average", shown.num_seeds)) is not None
    ]
    if not found or len(found) < len(pairs):
        return Standing("", "", "")
    found.sort(key=lambda entry: entry[1].mean)
    ahead, equal, behind = (
        [told(pair, own) for pair, own in found if own.sign == sign] for sign in (-1, 0, 1)
    )
    if ahead:
        first = f"HFC is not the best: {joined(ahead)} {_is(ahead)} above it"
    elif equal:
        first = "No method is above HFC"
    else:
        first = "HFC is the best"
    return Standing(
        first,
        f"no difference from it was found in {joined(equal)}" if equal else "",
        f"{joined(behind)} {_is(behind)} below it" if behind else "",
    )


def _is(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"


def joined(words: Sequence[str]) -> str:
    """A list as it is written in a sentence.

    >>> joined(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))
