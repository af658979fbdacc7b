"""The tables of scale small: every measure with its standard error, and paired differences."""

import json
import math

import pandas as pd
import pytest

from avalanche_hfc.lab.read import read_runs
from avalanche_hfc.lab.table import cells_of, runs_of
from avalanche_hfc.report.tables import paper_of, steps_of, table_of, title_of, write_table


def write(run, accuracies):
    run.folder.mkdir(parents=True)
    held = {"recipe": {"name": run.recipe.name}, "seed": run.seed, "versions": {}, "machine": ""}
    (run.folder / "recipe.json").write_text(json.dumps(held | {"finished": "now"}))
    rows = [
        {
            "step": step,
            "classes": 4 * (step + 1),
            "images": 200,
            "accuracy": value,
            "accuracy_nme": value / 2,
            "average": sum(accuracies[: step + 1]) / (step + 1),
            "forgetting": 0.1,
            "fh": 0.02,
            "seconds": 3.0,
        }
        for step, value in enumerate(accuracies)
    ]
    pd.DataFrame(rows).to_csv(run.folder / "steps.csv", index=False)


def made(folder, table, rows, accuracy, seeds=3):
    """The numbers and the markdown of a table whose runs have `accuracy(recipe's name, seed)`."""
    cells = cells_of(table, "small", rows)
    runs = runs_of(cells, seeds, folder / "runs")
    for run in runs:
        value = accuracy(run.recipe.name, run.seed)
        write(run, [value + 0.1, value])
    data = read_runs([run.folder for run in runs])[0]
    numbers = table_of(table, "small", cells, steps_of(data), paper_of())
    title = title_of(table, "small", {}, paper_of())
    files = write_table(table, numbers, folder, table, title, cells=cells, runs=data)
    return numbers, files[1].read_text(), files


def line(text, start):
    return next(one for one in text.splitlines() if one.startswith(f"| `{start}`"))


def test_a_row_has_every_measure_and_the_lead_of_hfc_seed_by_seed(tmp_path):
    values = {"hfc": (0.5, 0.6, 0.7), "icarl": (0.4, 0.51, 0.6), "wa": (0.4, 0.7, 0.7)}

    def accuracy(name, seed):
        return values[name.split("-t5-")[1].split("@")[0]][seed]

    numbers, text, files = made(tmp_path, "comparison", list(values), accuracy)
    order = "average last Δ average Δ last average_nme last_nme forgetting fh seconds"
    assert (
        line(text.replace("| method", "| `method`"), "method")
        .replace(" | ", " ")
        .startswith(f"| `method` {order}")
    )
    last = {row: [100 * value for value in own] for row, own in values.items()}
    for row, own in last.items():
        mean = sum(own) / 3
        error = math.sqrt(sum((value - mean) ** 2 for value in own) / 2 / 3)
        cells = [cell.strip() for cell in line(text, row).split("|")]
        assert cells[2:4] == [f"{mean + 5:.1f} ± {error:.1f}", f"{mean:.1f} ± {error:.1f}"]
        assert cells[7].startswith(f"{mean / 2:.1f} ±") and cells[9] == "20.0 ± 0.0"
        assert cells[10] == "6.0 ± 0.0"
    leads = [a - b for a, b in zip(last["hfc"], last["icarl"], strict=True)]
    mean = sum(leads) / 3
    error = math.sqrt(sum((lead - mean) ** 2 for lead in leads) / 2 / 3)
    assert f"| {mean:+.1f} ± {error:.1f} |" in line(text, "icarl")
    assert "(none)" in line(text, "wa") and "(none)" not in line(text, "icarl")
    assert numbers["paper"].isna().all() and "20 classes of CIFAR-100" in text
    assert set(numbers[numbers["row"] == "hfc"]["column"]) & {"Δ average", "Δ last"} == set()
    assert [path.name for path in files] == [
        "summary.csv",
        "table.md",
        "table.tex",
        "steps.csv",
        "machine.json",
    ]


@pytest.mark.parametrize(
    ("table", "word", "compared"),
    [
        ("initialisation", "-random-", "vit-small, random weights"),
        ("plug-and-play", None, None),
    ],
)
def test_a_table_compares_with_the_row_that_its_question_names(tmp_path, table, word, compared):
    def accuracy(name, seed):
        better = "+hfc" in name if word is None else word not in name
        return 0.5 + 0.01 * seed + (0.2 if better else 0)

    numbers, text, _ = made(tmp_path, table, [], accuracy, seeds=2)
    leads = numbers[numbers["column"] == "Δ last"]
    assert leads["ours"].tolist() == pytest.approx([20.0] * len(leads)) and len(leads) > 4
    if compared is None:
        assert set(leads["losses"]) == {"host"}
    else:
        assert set(leads["backbone"]) == {compared}
        assert line(text, "hfc").count("| `small-mae` |") == 1
        assert text.count("| random weights |") == len(leads)


def test_protocols_and_memories_are_settings_of_a_line_and_the_rows_name_their_recipe(tmp_path):
    _, text, files = made(tmp_path, "memory", ["hfc", "podnet"], lambda name, seed: 0.5)
    assert [one.split("|")[2].strip() for one in text.splitlines() if "`podnet`" in one] == [
        f"{count} per class" for count in (5, 10, 20, 50)
    ]
    rows = pd.read_csv(next(path for path in files if path.name == "steps.csv"))
    assert rows.groupby(["recipe", "seed"]).size().eq(2).all() and rows["recipe"].nunique() == 8


@pytest.mark.parametrize("table", ["imagenet100", "imagenet1000", "steps-imagenet100"])
@pytest.mark.parametrize("scale", ["small", "medium"])
def test_tables_of_imagenet_do_not_exist_at_the_small_scales(table, scale):
    with pytest.raises(ValueError, match=f"Table {table} exists at scale paper, demo, not at"):
        cells_of(table, scale)
