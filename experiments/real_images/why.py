"""Sentences on why HFC works or does not, and on what FH tells of accuracy.

A finding is written by hand, with the differences it stands on. It is shown only while the rows
bear it out: each difference must have the sign that the sentence tells.
"""

from collections.abc import Iterable
from typing import NamedTuple

import pandas as pd
from variants import CLASS_MEAN, PLAIN, WITHOUT_LOSSES, WITHOUT_RELATION

from avalanche_hfc.report.numbers import TEST, Difference
from real_images.claims import recipes_of
from real_images.tables import ABLATION, COMPARISON, PLUG_AND_PLAY

RUN = ["recipe", "seed"]
LEAST_ROWS = 4  # of which a rank correlation is worth a sentence
LEAST_SEEDS = 3  # of which a finding is told


class Change(NamedTuple):
    """What the first has more of a measure than the second, and which sign the sentence tells: 1 or
    -1, 0 for no difference found.
    """

    first: str
    second: str
    sign: int
    column: str = "average"


class Finding(NamedTuple):
    """A sentence with a place `{}` for each change, which it names in the same order."""

    text: str
    changes: tuple[Change, ...]


ON_TESTS = (
    Finding(
        "L_RD balances the head; the features hardly change. In place of the distillation of "
        "`baseline` it raises the average by {}, while the average by the nearest means changes by "
        "{}.",
        (
            Change("baseline+grd", "baseline", 1),
            Change("baseline+grd", "baseline", -1, "average_nme"),
        ),
    ),
    Finding(
        "Beside `herding-replay`, HFC ends higher on old classes ({}) and lower on the newest ones "
        "({}).",
        (
            Change("hfc", "herding-replay", 1, "last_old"),
            Change("hfc", "herding-replay", -1, "last_new"),
        ),
    ),
    Finding(
        "So both losses help most where the whole network is trained with exemplars and nothing "
        "else balances the head: `baseline` ({}), `herding-replay` ({}) and `wa` ({}), whose "
        "alignment has nothing to do here ([below](#weight-alignment)). `finetune`, without "
        "exemplars, gains {}; with a frozen network (`frozen-replay`) no difference was found "
        "({}). Methods that tune on balanced exemplars change by {} "
        "(`podnet`) or show no difference (`podnet-cscct` {}, `afc` {}, `dytox` {}). Where a "
        "method predicts by means or balances its losses or its head, they cost accuracy: `icarl` "
        "({}), `bic` ({}), `ssil` ({}) and `foster` ({}).",
        (
            *(Change(f"{row}+hfc", row, 1) for row in ("baseline", "herding-replay", "wa")),
            Change("finetune+hfc", "finetune", 1),
            Change("frozen-replay+hfc", "frozen-replay", 0),
            Change("podnet+hfc", "podnet", 1),
            *(Change(f"{row}+hfc", row, 0) for row in ("podnet-cscct", "afc", "dytox")),
            *(Change(f"{row}+hfc", row, -1) for row in ("icarl", "bic", "ssil", "foster")),
        ),
    ),
    Finding(
        "L_FC lowers FH, not the number of errors. In `baseline` it changes FH × 1000 by {} and "
        "the average by {}; beside L_RD it changes FH by {}, and the average by {}, which is no "
        "difference found.",
        (
            Change("baseline+gfc", "baseline", -1, "fh"),
            Change("baseline+gfc", "baseline", -1),
            Change("baseline+hfc", "baseline+grd", -1, "fh"),
            Change("baseline+hfc", "baseline+grd", 0),
        ),
    ),
    Finding(
        "At equal values both losses without TSA are better than HFC: {} on average, {} after the "
        "last step.",
        (
            Change("baseline+hfc", "baseline+tsa+hfc", 1),
            Change("baseline+hfc", "baseline+tsa+hfc", 1, "last"),
        ),
    ),
)
LABELS, SAMPLES = "L_RD towards the labels", "L_RD as a mean over samples"
ON_TRIALS = (
    Finding(
        "L_RD is what works. With the distillation of `baseline` in its place the average changes "
        "by {}.",
        (Change(WITHOUT_RELATION, PLAIN, -1),),
    ),
    Finding(
        "Two things in it help, and either alone gives most of the gain: the mean over classes, in "
        "which an old class with few images counts as much as a new one, and the targets of the "
        "teacher. Towards the labels, with the mean over classes but no teacher, L_RD still adds "
        "{}; as a mean over samples, with the teacher, {}. They differ from the default by {} and "
        "{}. A cross-entropy as a mean over classes changes `baseline` with TSA by {}, which three "
        "seeds do not make certain.",
        (
            Change(LABELS, WITHOUT_RELATION, 1),
            Change(SAMPLES, WITHOUT_RELATION, 1),
            Change(LABELS, PLAIN, -1),
            Change(SAMPLES, PLAIN, -1),
            Change(CLASS_MEAN, WITHOUT_LOSSES, 0),
        ),
    ),
    Finding(
        "Its terms of old classes carry it: alone they add {}; those of new classes alone change "
        "the average by {}, no difference found.",
        (
            Change("L_RD of old classes alone", WITHOUT_RELATION, 1),
            Change("L_RD of new classes alone", WITHOUT_RELATION, 0),
        ),
    ),
    Finding(
        "Of the other choices inside the losses few matter here. α = (1, 1) instead of (1 - ρ, ρ), "
        "ρ the share of old classes, changes the average by {}, the loss of the released code by "
        "{}. No difference was found for targets as printed ({}), each sample instead of "
        "prototypes ({}) and gradient weights in neither loss ({}; FH × 1000 {}, no difference "
        "found with three seeds).",
        (
            Change("α = (1, 1)", PLAIN, -1),
            Change("the released loss", PLAIN, -1),
            Change("literal targets over the classes present", PLAIN, 0),
            Change("each sample instead of prototypes", PLAIN, 0),
            Change("gradient weights in neither", PLAIN, 0),
            Change("gradient weights in neither", PLAIN, 0, "fh"),
        ),
    ),
    Finding(
        "TSA costs accuracy here. Without it, a class token after the same five pre-trained blocks "
        "is better by {}; added after all six, TSA changes the average of a class token by {}. It "
        "starts at random, the blocks before it do not; longer training may close the gap.",
        (
            Change("class token after five blocks", PLAIN, 1),
            Change("TSA after six blocks", "class token instead of TSA", -1),
        ),
    ),
)


def on_tests(runs: pd.DataFrame, classes: pd.DataFrame) -> pd.DataFrame:
    """The measures of runs on test images in five equal steps, by the name of their row and their
    seed; of those with rows of classes, also the last accuracy on old and on the newest classes.
    """
    tables = (COMPARISON, ABLATION, PLUG_AND_PLAY)
    names = {recipe: row for (row, *own), recipe in recipes_of(*tables).items() if own == [0, 5]}
    own = runs[runs["recipe"].isin(names) & (runs["seed"] < COMPARISON.num_seeds)]
    ends = classes[classes["step"] == classes.groupby(RUN)["step"].transform("max")]
    for column, chosen in (
        ("last_old", ends["brought_in"] < ends["step"]),
        ("last_new", ends["brought_in"] == ends["step"]),
    ):
        sums = ends[chosen].groupby(RUN)[["correct", "total"]].sum()
        accuracy = (100 * sums["correct"] / sums["total"]).rename(column)
        own = own.merge(accuracy.reset_index(), on=RUN, how="left")
    return own.assign(row=own["recipe"].map(names)).set_index(["row", "seed"])


def why(runs: pd.DataFrame, classes: pd.DataFrame, forms: pd.DataFrame) -> str:
    """Two lists as markdown: what runs on test images and trials on held-out images say; empty
    without either.

    Args:
        runs: The runs on test images.
        classes: The rows of classes of some of them.
        forms: The measures of each form of HFC and seed.
    """
    tests, trials = told(ON_TESTS, on_tests(runs, classes)), told(ON_TRIALS, forms)
    parts = []
    if tests:
        parts += [
            f"On test images, by {TEST}; the sentences were written when the rows were known:",
            "",
            *(f"- {text}" for text in tests),
            "",
        ]
    if trials:
        parts += [
            "On held-out images, HFC beside itself with one thing changed "
            "([Forms of HFC](#forms-of-hfc)):",
            "",
            *(f"- {text}" for text in trials),
            "",
        ]
    return "\n".join(parts)


def told(findings: Iterable[Finding], measures: pd.DataFrame) -> list[str]:
    """The sentences that the rows bear out.

    Args:
        findings: What is to be told.
        measures: A row for each name and seed, a column for each measure.
    """
    return [
        finding.text.format(*(f"{own.mean:+.1f} ± {own.error:.1f}" for own in found))
        for finding in findings
        if (found := borne_out(finding, measures)) is not None
    ]


def borne_out(finding: Finding, measures: pd.DataFrame) -> list[Difference] | None:
    """The differences of a finding; None where one has too few seeds or another sign."""
    found = []
    for first, second, sign, column in finding.changes:
        values = measures[column].unstack("seed").reindex([first, second])
        added = Difference.of((values.loc[first] - values.loc[second]).dropna())
        if added.num_seeds < LEAST_SEEDS or added.sign != sign:
            return None
        found.append(added)
    return found


def above(added: pd.DataFrame) -> str:
    """Which changes raise the average of a default.

    Args:
        added: The average of each change minus that of the default: a row per change, a column per
            seed.

    Returns:
        A sentence; empty where a change has one seed, of which nothing can be said.
    """
    found = {name: Difference.of(each.dropna()) for name, each in added.iterrows()}
    if not found or any(own.num_seeds < 2 for own in found.values()):
        return ""
    raised = [
        f"{name} ({own.mean:+.1f} ± {own.error:.1f})"
        for name, own in sorted(found.items(), key=lambda entry: -entry[1].mean)
        if own.sign > 0
    ]
    return f"Above the default, by {TEST}: {'; '.join(raised) or 'nothing'}.\n"


def fh_alone(numbers: pd.DataFrame) -> str:
    """Whether a low FH goes with a high average: the row with the lowest FH, and the rank
    correlation over rows.

    Args:
        numbers: `average` and `fh` of each row, means over seeds; rows are named by the index.

    Returns:
        A sentence; empty for fewer than `LEAST_ROWS` rows, or where all of them are equal.
    """
    known = numbers[["average", "fh"]].dropna()
    if len(known) < LEAST_ROWS or (known.nunique() == 1).any():
        return ""
    lowest = known["fh"].idxmin()
    place = int(known["average"].rank(ascending=False, method="min")[lowest])
    correlation = known["average"].corr(known["fh"], method="spearman")
    return (
        f"The lowest FH, {known.at[lowest, 'fh']:.1f}, is that of {lowest}, number {place} of "
        f"{len(known)} by the average; the rank correlation of FH and average over these rows is "
        f"{correlation:+.2f}.\n"
    )
