"""From the demonstration's rows to numbers, a table and a picture."""

import json

import pandas as pd
from PIL import Image, ImageColor

from avalanche_hfc.lab import DEMO_METHODS
from avalanche_hfc.lab.read import read_runs
from avalanche_hfc.report.figures import METHOD_COLOURS, SERIES, as_png
from avalanche_hfc.report.table_figures import demo_curves
from avalanche_hfc.report.tables import DEMO_COLUMNS, demo_rows, demo_summary, demo_table


def rows(seeds=(0,)):
    accuracies = {"hfc": (1.0, 0.8), "avalanche-naive": (1.0, 0.5)}
    return pd.DataFrame(
        [
            dict(
                method=method,
                seed=seed,
                step=step,
                classes=2 * step + 2,
                accuracy=value - 0.1 * seed,
                average=sum(values[: step + 1]) / (step + 1) - 0.1 * seed,
                forgetting=0.25 * step,
                fh=0.01 * (step + 1),
                seconds=1.5,
            )
            for method, values in accuracies.items()
            for seed in seeds
            for step, value in enumerate(values)
        ]
    )


def test_the_table_gives_percent_per_mille_and_the_spread_over_seeds():
    text = demo_table(demo_summary(rows()))
    line = next(line for line in text.splitlines() if line.startswith("HFC"))
    assert line.split() == ["HFC", "90.0", "80.0", "15.0", "3.0", "1"]
    spread = next(
        line
        for line in demo_table(demo_summary(rows(seeds=(0, 1)))).splitlines()
        if line.startswith("HFC")
    )
    assert "85.0 ± 7.1" in spread and spread.split()[-1] == "2"


def test_rows_are_gathered_from_the_runs_with_method_and_seed(tmp_path):
    for seed, accuracy in ((10, 0.5), (2, 0.25)):
        run = tmp_path / "runs" / "digits-b0-t5-hfc@demo" / str(seed)
        run.mkdir(parents=True)
        row = dict(
            step=0,
            classes=2,
            images=9,
            accuracy=accuracy,
            average=accuracy,
            forgetting=None,
            fh=0.1,
            seconds=1.0,
        )
        pd.DataFrame([row | dict(accuracy_nme=None)]).to_csv(run / "steps.csv", index=False)
        held = {"recipe": {"name": "digits-b0-t5-hfc@demo"}, "seed": seed}
        (run / "recipe.json").write_text(json.dumps(held))
    rows = demo_rows(read_runs([tmp_path / "runs"])[0])
    assert list(rows) == DEMO_COLUMNS
    assert rows[["method", "seed", "accuracy"]].to_numpy().tolist() == [
        ["hfc", 2, 0.25],
        ["hfc", 10, 0.5],
    ]


def test_the_picture_shows_a_curve_for_each_method(tmp_path):
    for name, shown in (("both", rows()), ("one", rows().query("method == 'hfc'"))):
        (tmp_path / f"{name}.png").write_bytes(as_png(demo_curves(shown)))

    def colours(name):
        image = Image.open(tmp_path / name).convert("RGB")
        found = {colour for count, colour in image.getcolors(1 << 20) if count > 50}
        hues = {
            method: SERIES[METHOD_COLOURS.index(method) % len(SERIES)] for method in DEMO_METHODS
        }
        return {method for method, hue in hues.items() if ImageColor.getrgb(hue) in found}

    assert colours("both.png") == {"hfc", "avalanche-naive"}
    assert colours("one.png") == {"hfc"}
