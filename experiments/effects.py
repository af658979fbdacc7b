"""What single details of training do on split digits: a method as it is beside the same with one
value changed, seed by seed.

    python experiments/effects.py --out effects

Runs are kept in OUT/runs and resumed; the rows go to OUT/steps.csv, the differences to
OUT/effects.md.
"""

import argparse
import re
import sys
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from tune import positive, train_all

from avalanche_hfc.lab import override, recipe
from avalanche_hfc.lab.machine import silence_host
from avalanche_hfc.lab.rows import replace_file
from avalanche_hfc.lab.table import TableRun
from avalanche_hfc.report.numbers import Difference


class Variant(NamedTuple):
    """A row of the methods' table with a value changed, or several with commas between."""

    row: str
    value: str
    seeds: range = range(5)


VARIANTS = [
    *(
        Variant(row, "method.reset_optimizer=false")
        for row in ("hfc", "herding-replay", "baseline", "icarl", "bic", "podnet", "foster")
    ),
    Variant("ssil", "method.reset_optimizer=true"),
    *(
        Variant(row, "method.scale_lr=0.001", range(5, 10))
        for row in ("podnet", "podnet+hfc", "afc")
    ),  # η stays near 1, as under AdamW
    *(Variant(row, "method.rule=icarl-code") for row in ("icarl", "podnet", "afc")),
    Variant("bic", "method.rule=greedy"),
    Variant("dytox", "method.rule=greedy"),
    Variant("dytox", "method.repeats=3"),
    Variant("icarl", "method.divisor=all"),
    Variant("icarl", "method.divisor=all, method.columns=all"),
    Variant("hfc", "method.drop_last=true"),
    Variant("foster", "method.beta=0.96, method.compress_beta=0.97"),  # the published pair
    *(
        Variant(row, f"method.losses={losses}")
        for row in ("icarl", "bic", "dytox", "foster")
        for losses in ("gfc", "grd")
    ),
    *(
        Variant(row, "method.beta=0, method.compress_beta=0") for row in ("foster", "foster+hfc")
    ),  # no weights of classes
    # what recipes of the paper take from the authors' code
    Variant("ssil", "method.replay_draws=repeated"),
    Variant("foster", "method.network=boosted"),
    Variant("afc", "method.importance_pass=train"),
    Variant("dytox", "method.tune_order=by-class"),
    *(  # where batch norm can move
        Variant(row, "method.tune_mode=train, method.herd_again=true")
        for row in ("podnet-resnet32", "afc-resnet32")
    ),
]


def runs_of(out: Path) -> dict[tuple[str, str], list[TableRun]]:
    """(row, value) -> runs; the value "" is the method as it is."""
    found: dict[tuple[str, str], list[TableRun]] = {}
    for row, value, seeds in VARIANTS:
        plain = recipe(f"digits-b0-t5-{row}@demo")
        for name, chosen in (
            ("", plain),
            (value, override(plain, dict(part.split("=") for part in value.split(", ")))),
        ):
            runs = found.setdefault((row, name), [])
            folder = (
                out / "runs" / (name.replace("=", "-").replace(", ", "-") or "plain") / chosen.name
            )
            runs += [
                TableRun(chosen, seed, folder / str(seed))
                for seed in seeds
                if seed not in [run.seed for run in runs]
            ]
    return found


def rows_of(runs: dict[tuple[str, str], list[TableRun]]) -> pd.DataFrame:
    parts = []
    for (row, value), own in runs.items():
        for run in own:
            steps = pd.read_csv(run.folder / "steps.csv")
            parts.append(
                steps[["step", "accuracy", "average", "forgetting", "fh"]].assign(
                    row=row, value=value, seed=run.seed
                )
            )
    return pd.concat(parts, ignore_index=True)[
        ["row", "value", "seed", "step", "accuracy", "average", "forgetting", "fh"]
    ]


def ends_of(rows: pd.DataFrame) -> pd.DataFrame:
    """Average and last accuracy of each run in percent, by row, value and seed."""
    return (
        rows.fillna({"value": ""})
        .sort_values("step")
        .groupby(["row", "value", "seed"])[["average", "accuracy"]]
        .last()
        * 100
    )


def forms_of(ends: pd.DataFrame, variant: Variant) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The runs of a row as it is and with the values changed, on the same seeds."""
    plain, changed = (
        ends.loc[(variant.row, name)].loc[list(variant.seeds)] for name in ("", variant.value)
    )
    return plain, changed


def difference(rows: pd.DataFrame, row: str, values: str) -> dict[str, str]:
    """Changed minus plain, by measure. The values stand as in the table."""
    found = [one for one in VARIANTS if (one.row, without_parts(one.value)) == (row, values)]
    if not found:
        raise KeyError(f"{row}: {values} is not among the variants")
    plain, changed = forms_of(ends_of(rows), found[0])
    added = changed - plain
    return {column: told(Difference.of(added[column])) for column in added}


def without_parts(values: str) -> str:
    """Values of leaves without the part that a leaf begins with."""
    return re.sub(r"\w+\.(?=\w+=)", "", values)


def table(rows: pd.DataFrame) -> str:
    """Markdown: a line per variant. Both forms on the same seeds; the difference, changed minus
    plain, ± its standard error.
    """
    ends = ends_of(rows)
    lines = [
        "| method | changed | average / last as it is | changed | Δ average | Δ last |",
        "|---|---|---|---|---|---|",
    ]
    for variant in VARIANTS:
        plain, changed = forms_of(ends, variant)
        added = changed - plain
        cells = [
            f"{form['average'].mean():.1f} / {form['accuracy'].mean():.1f}"
            for form in (plain, changed)
        ]
        cells += [told(Difference.of(added[column])) for column in added]
        lines.append(
            f"| `{variant.row}` | `{without_parts(variant.value)}` | {' | '.join(cells)} |"
        )
    return "\n".join(lines) + "\n"


def told(added: Difference) -> str:
    """Mean ± standard error."""
    return f"{added.mean:+.2f} ± {added.error:.2f}{added.mark}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("effects"), help="result folder")
    parser.add_argument("--jobs", type=positive, default=2, help="processes, one thread each")
    arguments = parser.parse_args()
    runs = runs_of(arguments.out)
    silence_host()
    failed = train_all(
        [run for own in runs.values() for run in own], None, arguments.jobs, lambda: None
    )
    if failed:
        sys.exit("\n".join(failed))
    rows = rows_of(runs)
    replace_file(arguments.out / "steps.csv", rows.to_csv(index=False))
    replace_file(arguments.out / "effects.md", table(rows))
    print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
