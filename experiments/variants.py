"""What each part of HFC does, on held-out training images: HFC beside the same with one part
changed, seed by seed.

    python experiments/variants.py --data cifar100.npz --jobs 2

Runs are kept in RUNS and resumed. OUT/variants.csv has a line per run, and a run that has one is
not trained again; OUT/variants.md has the differences from HFC's default form.
"""

import sys
from pathlib import Path

import pandas as pd
from tune import Trial, Trials, changed_of, parser_of, run_of, train_all

from avalanche_hfc._names import lookup
from avalanche_hfc.lab.machine import silence_host
from avalanche_hfc.lab.rows import replace_file
from avalanche_hfc.report.numbers import Difference

SEEDS = (100, 101, 102)  # none of the tables'
PLAIN = "default"


def weights(compensation: str, relation: str) -> tuple[tuple[str, str], ...]:
    """α_1 and α_2."""
    return ("method.compensation_weight", compensation), ("method.relation_weight", relation)


BOTH = (("method.losses", "hfc"),)
WITHOUT_RELATION = "L_FC and the distillation of each sample in place of L_RD"
WITHOUT_LOSSES = "cross-entropy and distillation of each sample"
CLASS_MEAN = "the same, cross-entropy as a mean over classes"
# What is changed, under what it asks. `baseline+tsa` with both losses is HFC's default form, and
# takes options that `hfc` does not
GROUPS: dict[str, dict[str, Trial]] = {
    "Weights of the losses": {
        "α = (1, 1)": Trial("hfc", weights("1", "1")),
        "α = (1, 2)": Trial("hfc", weights("1", "2")),
        "α = (1, 5)": Trial("hfc", weights("1", "5")),
    },
    "Targets and averages of L_RD": {
        "literal targets over the classes seen, α = (1, 1)": Trial("hfc-paper"),
        "literal targets over the classes seen, α balanced": Trial(
            "hfc-paper", weights("balanced", "balanced")
        ),
        "literal targets over the classes present": Trial("hfc", (("method.normalise", "false"),)),
        "normalised targets over the classes seen": Trial("hfc", (("method.average", "seen"),)),
        "each sample instead of prototypes": Trial("hfc", (("method.prototypes", "false"),)),
        "the released loss": Trial("hfc-official"),
    },
    "Gradient weights": {
        f"gradient weights {where}": Trial("hfc", (("method.gradient_weights", losses),))
        for losses, where in (
            ("compensation", "in L_FC alone"),
            ("relation", "in L_RD alone"),
            ("neither", "in neither"),
        )
    },
    "What of L_RD helps": {
        "L_RD as a mean over samples": Trial("controls:SampleMean", BOTH),
        "L_RD of old classes alone": Trial("controls:OldClasses", BOTH),
        "L_RD of new classes alone": Trial("controls:NewClasses", BOTH),
        "L_RD towards the labels": Trial("controls:Labels", BOTH),
        WITHOUT_RELATION: Trial("baseline+tsa", (("method.losses", "gfc"),)),
        WITHOUT_LOSSES: Trial("baseline+tsa"),
        CLASS_MEAN: Trial("controls:ClassMean"),
    },
    "TSA and the rest of the network": {
        "TSA with the residual": Trial("hfc", (("model.residual", "true"),)),
        "class token instead of TSA": Trial("baseline", BOTH),
        "class token after five blocks": Trial("baseline", (*BOTH, ("model.msa_blocks", "5"))),
        "TSA after six blocks": Trial("hfc", (("model.msa_blocks", "6"),)),
        "head and TSA at five times the rate": Trial("hfc", (("train.head_lr_factor", "5"),)),
        "head and TSA at five times the rate, the rest at 2e-4": Trial(
            "hfc", (("train.head_lr_factor", "5"), ("train.lr", "2e-4"))
        ),
    },
    "Choice of exemplars": {
        f"herding rule {rule}": Trial("baseline+tsa", (*BOTH, ("method.rule", rule)))
        for rule in ("icarl-code", "closest", "first")
    },
}
VARIANTS = {
    PLAIN: Trial("hfc"),
    **{name: trial for group in GROUPS.values() for name, trial in group.items()},
}


def by_variant(lines: pd.DataFrame) -> pd.DataFrame:
    """The measures of each variant and seed.

    Raises:
        ValueError: A line is of no variant.
    """
    names = {(trial.row, str(trial)): name for name, trial in VARIANTS.items()}
    keys = [*lines[["row", "values"]].itertuples(index=False, name=None)]
    for row, values in keys:
        if (row, values) not in names:
            raise ValueError(f"{row}, {values}, is no variant. Remove its lines.")
    named = lines.assign(variant=[names[key] for key in keys])
    return named.set_index(["variant", "seed"])[["average", "last", "fh"]]


def table(runs: pd.DataFrame) -> str:
    """Markdown: a line per variant; the difference from HFC, ± its standard error."""
    text = [
        "| variant | average | last | FH | Δ average | Δ last |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    plain = runs.loc[PLAIN] if PLAIN in runs.index else runs.iloc[:0].droplevel(0)
    for variant in dict.fromkeys(runs.index.get_level_values("variant")):
        own = runs.loc[variant]
        added = (own - plain).dropna()
        cells = [f"{own[column].mean():.1f}" for column in own]
        cells += [
            "–" if variant == PLAIN or added.empty else told(Difference.of(added[column]))
            for column in ("average", "last")
        ]
        text.append(f"| {variant} | {' | '.join(cells)} |")
    return "\n".join(text) + "\n"


def told(added: Difference) -> str:
    """Mean ± standard error; of one seed the mean alone."""
    error = "" if pd.isna(added.error) else f" ± {added.error:.1f}"
    return f"{added.mean:+.1f}{error}{added.mark}"


def main() -> int:
    parser = parser_of(__doc__, "variants")
    parser.add_argument("--seed", type=int, action="append", default=[], help=f"instead of {SEEDS}")
    arguments = parser.parse_args()
    folder: Path = arguments.out
    try:
        chosen = {name: lookup(VARIANTS, name, "variant") for name in arguments.only} or VARIANTS
        changed = changed_of(arguments.set)
        trials = Trials(
            [
                (trial, run_of(trial, seed, arguments.runs, changed))
                for seed in arguments.seed or SEEDS
                for trial in chosen.values()
            ],
            folder / "variants.csv",
        )
        by_variant(trials.collect())
    except ValueError as error:
        parser.error(str(error))
    silence_host()
    folder.mkdir(parents=True, exist_ok=True)

    def write() -> None:
        lines = trials.collect()
        if len(lines):
            lines = lines.drop(columns="best")
            replace_file(folder / "variants.csv", lines.to_csv(index=False))
            replace_file(folder / "variants.md", table(by_variant(lines)))

    failed = train_all(trials.missing(), arguments.data, arguments.jobs, write)
    write()
    print(f"Wrote {folder / 'variants.md'}.", *failed, sep="\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
