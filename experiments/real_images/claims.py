"""What the rows say about the paper's claims: differences seed by seed, and the sentences that
follow from them.
"""

from collections.abc import Iterable, Sequence
from math import isnan
from typing import NamedTuple

import pandas as pd

from avalanche_hfc._names import joined
from avalanche_hfc.lab.options import UPPER_BOUNDS
from avalanche_hfc.lab.tables import EIGHT, FH_ROWS
from avalanche_hfc.report.numbers import ONE_SEED, TEST, Difference
from avalanche_hfc.report.tables import Grid, markdown
from real_images.tables import ABLATION, COMPARISON, PLUG_AND_PLAY, PROTOCOLS, Shown

ALL_PARTS = "baseline+tsa+hfc"  # HFC with the values that were tuned for the baseline
PARTS = (  # what is changed, in what, by the rows of the table
    ("TSA in place of the last block of", "baseline", "baseline+tsa"),
    ("L_FC in", "baseline+tsa", "baseline+tsa+gfc"),
    ("L_RD in place of the distillation of", "baseline+tsa+gfc", ALL_PARTS),
)
LISTS = ("Confirmed", "No difference found", "The opposite found", "Not tested: rows are missing")
RULE = (
    "A claim is confirmed where the difference has the sign that the paper claims and "
    f"{TEST} over seeds finds it. In brackets: the difference ± its standard error, in points of "
    "accuracy or FH × 1000. Of forty pairs without a difference, one is expected to be confirmed "
    "by chance. Seeds differ in training only: what is found holds for these 1,000 test images, on "
    "which an accuracy near 50 % has a sampling error of 1.6 points."
)


class Pair(NamedTuple):
    """Two recipes that are compared, and how the second is named."""

    label: str
    first: str
    second: str


class Claim(NamedTuple):
    """What the paper says of some pairs: the first has more (1) or less (-1) of a measure. `short`
    is the claim as a line of the table of all claims.
    """

    short: str
    text: str
    pairs: Sequence[Pair]
    column: str = "average"
    sign: int = 1
    num_seeds: int = COMPARISON.num_seeds


class Verdict(NamedTuple):
    """The pairs of a claim that confirm it, those without a difference, those that show the
    opposite, and those without rows; in words.
    """

    confirmed: list[str]
    none: list[str]
    opposite: list[str]
    unknown: list[str]


def recipes_of(*tables: Shown) -> dict[tuple, str]:
    """(row with its losses, base fraction, number of steps) to the recipe."""
    return {
        (cell.row_name, cell.base_fraction, cell.num_steps): name
        for shown in tables
        for cell, name in shown.cells
    }


def over(
    rows: Iterable[str], *tables: Shown, protocol: tuple = (0, 5), first: str = "hfc"
) -> list[Pair]:
    """HFC with each of these rows of some tables; `first` is the row that stands for HFC."""
    names = recipes_of(*tables)
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
        Pair(f"{part} `{to}`", names[becomes, 0, 5], names[to, 0, 5]) for part, to, becomes in PARTS
    ]


CLAIMS = (
    Claim(
        "HFC has a higher average than the eight methods",
        "HFC has a higher average than",
        over(EIGHT, COMPARISON),
    ),
    Claim(
        "the same, equations as printed",
        "With the equations as printed (`hfc-paper`), HFC has a higher average than",
        over(EIGHT, COMPARISON, first="hfc-paper"),
    ),
    Claim(
        "the same, released loss",
        "With the loss of the released code (`hfc-official`), HFC has a higher average than",
        over(EIGHT, COMPARISON, first="hfc-official"),
    ),
    Claim(
        "HFC has a higher average than four methods in ten steps",
        "In ten steps HFC has a higher average than",
        over(EIGHT, PROTOCOLS, protocol=(0, 10)),
        num_seeds=PROTOCOLS.num_seeds,
    ),
    Claim(
        "the same, after a base step with half of the classes",
        "After a base step with half of the classes HFC has a higher average than",
        over(EIGHT, PROTOCOLS, protocol=(0.5, 5)),
        num_seeds=PROTOCOLS.num_seeds,
    ),
    Claim(
        "TSA, L_FC and L_RD each raise the average",
        "A part of HFC raises the average:",
        parts(),
    ),
    Claim(
        "both losses raise the average of the eight methods",
        "Both losses raise the average, with the values tuned for the method without them, of",
        with_losses(EIGHT),
    ),
    Claim(
        "HFC has a lower FH than with fewer parts",
        "With the values of `baseline`, HFC has a lower FH than",
        over(FH_ROWS[:-1], ABLATION, first=ALL_PARTS),
        "fh",
        -1,
    ),
    Claim(
        "HFC has a lower FH than four methods, each with its own values",
        "With the values tuned for each, on which FH depends, HFC has a lower FH than",
        over(FH_ROWS[:-1], COMPARISON),
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


def told(pair: Pair, found: Difference) -> str:
    """A pair with its difference, as in a list; of one seed without an error."""
    error = "" if isnan(found.error) else f" ± {found.error:.1f}"
    return f"{pair.label} ({found.mean:+.1f}{error})"


def judged(runs: pd.DataFrame, claim: Claim) -> Verdict:
    """What the rows say of each pair of a claim."""
    runs = runs[runs["seed"] < claim.num_seeds]
    pairs = Verdict([], [], [], [])
    for pair in claim.pairs:
        found = difference(runs, pair, claim.column, claim.num_seeds)
        if found is None:
            pairs.unknown.append(pair.label)
        elif found.none:
            pairs.none.append(told(pair, found))
        elif found.sign == claim.sign:
            pairs.confirmed.append(told(pair, found))
        else:
            pairs.opposite.append(told(pair, found))
    return pairs


def claims_table(runs: pd.DataFrame) -> str:
    """Markdown: how many pairs confirm each claim, show no difference, or show the opposite; empty
    where no pair could be judged.
    """
    lines = []
    for claim in CLAIMS:
        found = judged(runs, claim)
        counts = [len(part) for part in (found.confirmed, found.none, found.opposite)]
        if any(counts):
            lines.append([claim.short, *map(str, counts)])
    if not lines:
        return ""
    headings = ["claim of the paper", "confirmed", "no difference found", "the opposite"]
    about = (
        "Number of pairs. A pair is HFC and a method, a method with and without the losses, or HFC "
        "with more and with fewer parts."
    )
    return markdown(Grid(headings, 1, lines, about, []))


def verdict(runs: pd.DataFrame) -> str:
    """Markdown: the table of claims, then a list for each field of `Verdict`, with the numbers."""
    lists = Verdict([], [], [], [])
    for claim in CLAIMS:
        for lines, own in zip(lists, judged(runs, claim), strict=True):
            if own:
                lines.append(f"- {claim.text} {joined(own)}.")
    shown = "\n".join(
        "\n".join([f"**{title}**", "", *(lines or ["- Nothing."]), ""])
        for title, lines in zip(LISTS, lists, strict=True)
        if lines or title != LISTS[-1]
    )
    return "\n".join(filter(None, (claims_table(runs), f"{RULE}\n", shown)))


MEASURES = {  # by which methods are ranked: column, in words
    "average": "By the average over steps",
    "later": "By the average without the first step, in which no class is old,",
    "last": "By the last accuracy",
}
MOST_LISTED = 6  # methods below HFC that a sentence names; the table has all
BRACKETS = "In brackets: theirs minus that of HFC, seed by seed, ± its standard error."
BRACKETS_OF_ONE = f"In brackets: theirs minus that of HFC. {ONE_SEED}"


class Standing(NamedTuple):
    """Where HFC stands among the rows of a table: clauses of a sentence, empty where there is
    nothing to say.
    """

    first: str
    equal: str
    behind: str

    def __str__(self) -> str:
        return "; ".join(filter(None, self))


def with_later(runs: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """The runs with `later`, the average over steps but the first, percent."""
    accuracies = steps[steps["step"] > 0].groupby(["recipe", "seed"])["accuracy"]
    later = (100 * accuracies.mean()).rename("later").reset_index()
    return runs.merge(later, on=["recipe", "seed"], how="left")


def margins(
    runs: pd.DataFrame, shown: Shown, protocol: tuple = (0, 5), column: str = "average"
) -> list[tuple[Pair, Difference]]:
    """What each row of a table has more than HFC under a protocol, the highest first; empty before
    all of them have all seeds.
    """
    rows = [
        row
        for row, *own in recipes_of(shown)
        if tuple(own) == protocol and row not in ("hfc", *UPPER_BOUNDS)
    ]
    found = []
    for label, own, other in over(rows, shown, protocol=protocol):
        pair = Pair(label, other, own)  # theirs minus that of HFC
        lead = difference(runs, pair, column, shown.num_seeds)
        if lead is None:
            return []
        found.append((pair, lead))
    return sorted(found, key=lambda entry: -entry[1].mean)


def not_here(runs: pd.DataFrame, shown: Shown) -> str:
    """A sentence on the methods that are above HFC in the comparison and not in this table; empty
    where there are none.
    """
    here = {f"`{row}`" for row, *_ in recipes_of(shown)}
    above = dict.fromkeys(
        pair.label
        for column in ("average", "last")
        for pair, lead in margins(runs, COMPARISON, column=column)
        if lead.sign > 0 and pair.label not in here
    )
    if not above:
        return ""
    names = joined(list(above))
    return f"Not trained here, and above HFC in the comparison of all methods: {names}.\n"


def standing(
    runs: pd.DataFrame, shown: Shown, protocol: tuple = (0, 5), column: str = "average"
) -> Standing:
    """Compare HFC with every row of a table under a protocol, upper bounds apart; nothing is said
    before all of them have all seeds.
    """
    found = margins(runs, shown, protocol, column)
    ahead, equal, behind = (
        [told(pair, own) for pair, own in found if own.sign == sign] for sign in (1, 0, -1)
    )
    of_these = "" if shown is COMPARISON else f" of these {len(found) + 1}"
    if ahead:
        first = f"HFC is not the best: {joined(ahead)} {_is(ahead)} above it"
    elif equal:
        first = f"no method{of_these} is above HFC"
    elif behind:
        first = f"HFC is the best{of_these}"
    else:
        first = ""
    return Standing(
        first,
        f"no difference from it was found in {joined(equal)}" if equal else "",
        f"the other {len(behind)} are below it"
        if len(behind) > MOST_LISTED
        else f"{joined(behind)} {_is(behind)} below it"
        if behind
        else "",
    )


def _is(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"
