"""The numbers of a table and the curves of a figure, from the rows of runs."""

import json
import math
from pathlib import Path

import pandas as pd
import pytest

from avalanche_hfc.lab import FURTHER_TABLES, TABLES
from avalanche_hfc.lab.read import read_runs
from avalanche_hfc.lab.table import TableRun, cells_of, runs_of
from avalanche_hfc.report.table_figures import accuracy_figure, fh_figure, lines_of
from avalanche_hfc.report.tables import (
    FORMS,
    KEYS,
    markdown,
    own_cells,
    paper_grid,
    paper_of,
    steps_of,
    table_of,
    title_of,
)

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
ACCURACY = {"icarl": 0.5, "bic": 0.4, "hfc": 0.7, "joint": 0.9, "dytox": 0.6, "dytox+hfc": 0.65}


def write(run: TableRun, row, num_steps):
    """Rows whose accuracy falls by 0.01 a step and differs by row, T and seed."""
    first = ACCURACY[row] + 0.001 * num_steps + 0.02 * run.seed
    accuracies = [first - 0.01 * step for step in range(num_steps)]
    run.folder.mkdir(parents=True)
    held = {
        "recipe": {"name": run.recipe.name},
        "seed": run.seed,
        "versions": {},
        "machine": "",
        "finished": "now",
    }
    (run.folder / "recipe.json").write_text(json.dumps(held))
    rows = [
        {
            "step": step,
            "classes": 10 * (step + 1),
            "accuracy": value,
            "average": sum(accuracies[: step + 1]) / (step + 1),
            "fh": 0.1 * value,
        }
        for step, value in enumerate(accuracies)
    ]
    pd.DataFrame(rows).to_csv(run.folder / "steps.csv", index=False)
    return accuracies


def runs_at(folder, table, scale, rows, seeds=2):
    """Cells, runs and the accuracies of each recipe and seed."""
    cells = cells_of(table, scale, rows)
    by_name = {entry.recipe: entry.cell for entry in cells}
    runs = runs_of(cells, seeds, folder)
    written = {}
    for run in runs:
        cell = by_name[run.recipe.name]
        row = cell.row + ("+hfc" if cell.losses == "hfc" else "")
        written[run.recipe.name, run.seed] = write(
            run, row, 1 if cell.row == "joint" else cell.num_steps
        )
    return cells, runs, written


def rows_of(runs):
    return steps_of(read_runs([run.folder for run in runs])[0])


def cell(table, row, column, num_steps=None, losses="host"):
    own = table[(table["row"] == row) & (table["column"] == column) & (table["losses"] == losses)]
    own = own[own["num_steps"].isna() if num_steps is None else own["num_steps"] == num_steps]
    assert len(own) == 1
    return own.iloc[0]


def averages(written, row, num_steps, seeds=(0, 1)):
    values = [written[f"imagenet1000-b0-t{num_steps}-{row}@paper", seed] for seed in seeds]
    return [100 * sum(own) / len(own) for own in values]


def test_averages_means_and_leads_are_those_of_their_definitions(tmp_path):
    cells, runs, written = runs_at(tmp_path, "imagenet1000", "paper", ["icarl", "hfc", "joint"])
    table = table_of("imagenet1000", "paper", cells, rows_of(runs), paper_of())
    for row in ("icarl", "hfc"):
        for num_steps in (5, 10):
            own, values = cell(table, row, "average", num_steps), averages(written, row, num_steps)
            assert own["ours"] == pytest.approx(sum(values) / 2) and own["num_seeds"] == 2
            assert own["std"] == pytest.approx(abs(values[0] - values[1]) / math.sqrt(2))
            assert own["recipe"] == f"imagenet1000-b0-t{num_steps}-{row}@paper"
        over_t = [
            (a + b) / 2
            for a, b in zip(averages(written, row, 5), averages(written, row, 10), strict=True)
        ]
        assert cell(table, row, "mean")["ours"] == pytest.approx(sum(over_t) / 2)
    lead = cell(table, "icarl", "improvement")
    assert (
        lead["ours"] == pytest.approx(20.0)
        and lead["std"] == pytest.approx(0, abs=1e-9)
        and lead["paper"] == 3.5
    )
    assert lead["gap"] == pytest.approx(16.5) and lead["mark"] == "3.6 from the printed averages"


def test_joint_training_is_one_run_under_every_number_of_steps(tmp_path):
    cells, runs, _ = runs_at(tmp_path, "imagenet1000", "paper", ["joint"])
    assert [run.recipe.name for run in runs] == ["imagenet1000-b0-t1-joint@paper"] * 2
    table = table_of("imagenet1000", "paper", cells, rows_of(runs), paper_of())
    values = [
        cell(table, "joint", column, num_steps)["ours"]
        for column, num_steps in (("last", 5), ("last", 10), ("mean", None))
    ]
    assert values == pytest.approx([91.1] * 3) and "average" not in set(table["column"])


def test_a_mean_needs_every_number_of_steps_of_its_seed(tmp_path):
    cells, runs, written = runs_at(tmp_path, "imagenet1000", "paper", ["icarl", "hfc"])
    left = [
        run for run in runs if (run.recipe.name, run.seed) != ("imagenet1000-b0-t10-icarl@paper", 1)
    ]
    table = table_of("imagenet1000", "paper", cells, rows_of(left), paper_of())
    mean = cell(table, "icarl", "mean")
    assert mean["num_seeds"] == 1 and mean["ours"] == pytest.approx(
        sum(averages(written, "icarl", n, (0,))[0] for n in (5, 10)) / 2
    )
    assert (
        cell(table, "hfc", "mean")["num_seeds"] == 2
        and cell(table, "icarl", "improvement")["num_seeds"] == 1
    )
    assert cell(table, "icarl", "average", 10)["num_seeds"] == 1
    without = [run for run in runs if run.recipe.name != "imagenet1000-b0-t10-icarl@paper"]
    table = table_of("imagenet1000", "paper", cells, rows_of(without), paper_of())
    assert cell(table, "icarl", "mean")["num_seeds"] == 0 and math.isnan(
        cell(table, "icarl", "average", 10)["ours"]
    )


def test_the_losses_lead_their_own_host_step_by_step(tmp_path):
    cells, runs, written = runs_at(
        tmp_path, "steps-plug-and-play", "paper", ["dytox", "dytox+hfc"], seeds=1
    )
    table = table_of("steps-plug-and-play", "paper", cells, rows_of(runs), paper_of())
    steps = written["cifar100-b0-t10-dytox-convit@paper", 0]
    assert [cell(table, "dytox", f"step {k + 1}", 10)["ours"] for k in range(10)] == pytest.approx(
        [100 * value for value in steps]
    )
    assert cell(table, "dytox", "improvement", 10)["ours"] == pytest.approx(5.0)
    assert "improvement" not in set(table[table["losses"] == "hfc"]["column"])


def test_the_demonstrations_table_tells_its_own_data_and_no_number_of_the_paper(tmp_path):
    cells = cells_of("imagenet1000", "demo", ["icarl", "hfc"])
    runs = runs_of(cells, 1, tmp_path)
    for run in runs:
        write(run, run.recipe.method.name, 5)
    table = table_of("imagenet1000", "demo", cells, rows_of(runs), paper_of())
    assert table[[*KEYS, "scale"]].fillna(0).values.tolist() == [
        [row, "host", "tiny-vit", "digits", 0, 5, 20, 0, column, "demo"]
        for row, column in (("icarl", "average"), ("hfc", "average"))
    ]
    assert table["paper"].isna().all() and table["gap"].isna().all()
    text = markdown(paper_grid(table), title_of("imagenet1000", "demo", {}, None))
    assert "gap" not in text.lower() and "| paper" not in text
    assert "digits, B = 0%, T = 5, M = 20" in text and "ViT-Base" in text.splitlines()[0]


def test_a_run_on_digits_stands_once_whatever_data_it_stands_in_for():
    for table in ("plug-and-play", "ablation"):
        cells = cells_of(table, "demo")
        own = own_cells(cells)
        assert len({name for _, name in cells}) == len(own) < len(cells)
        assert {cell.dataset for cell, _ in own} == {"digits"}
        assert [name for _, name in own] == [*dict.fromkeys(name for _, name in cells)]


def test_fh_is_the_mean_over_steps_in_the_papers_unit(tmp_path):
    cells, runs, written = runs_at(tmp_path, "fh", "paper", ["icarl"], seeds=1)
    table = table_of("fh", "paper", cells, rows_of(runs), paper_of())
    accuracies = written["cifar100-b0-t5-icarl@paper", 0]
    assert cell(table, "icarl", "fh", 5)["ours"] == pytest.approx(1000 * 0.1 * sum(accuracies) / 5)


def test_titles_are_the_papers_and_tell_what_was_changed():
    captions = pd.read_csv(EXPERIMENTS / "paper_tables.csv").set_index("table")["caption"].to_dict()
    assert {table: FORMS[table].title for table in TABLES} == captions and set(FORMS) == {
        *TABLES,
        *FURTHER_TABLES,
    }
    assert title_of("fh", "paper", {}, paper_of()) == captions["fh"]
    assert (
        title_of("fh", "paper", {"train.epochs": 3}, None)
        == f"{captions['fh']}. Changed: train.epochs 3. The paper's numbers are not available"
    )


def test_a_file_that_is_not_the_papers_is_refused(tmp_path):
    (tmp_path / "other.csv").write_text("table,row\nfh,hfc\n")
    with pytest.raises(ValueError, match="has no column losses, .*mark"):
        paper_of(tmp_path / "other.csv")
    cells = cells_of("fh", "demo", ["hfc"])
    with pytest.raises(ValueError, match="No finished run of table fh"):
        table_of("fh", "demo", cells, steps_of([]))


def lines(cells, runs):
    recipes = {run.recipe.name: run.recipe for run in runs}
    return lines_of(cells, read_runs([run.folder for run in runs])[0], recipes)


def test_the_accuracy_figure_has_a_curve_per_row_over_the_classes_seen_and_the_papers_steps(
    tmp_path,
):
    cells, runs, written = runs_at(tmp_path, "steps-imagenet100", "paper", ["icarl", "hfc"])
    axes = accuracy_figure(lines(cells, runs), paper_of()).axes[0]
    ours = next(line for line in axes.lines if line.get_label() == "icarl")
    seeds = [written["imagenet100-b0-t10-icarl@paper", seed] for seed in (0, 1)]
    assert list(ours.get_xdata()) == [10 * k for k in range(1, 11)]
    assert list(ours.get_ydata()) == pytest.approx(
        [50 * (a + b) for a, b in zip(*seeds, strict=True)]
    )
    printed = [list(line.get_ydata()) for line in axes.lines if line.get_label() == "the paper's"]
    assert [values[0] for values in printed] == [96.4, 96.8]
    assert [values[-1] for values in printed] == [70.4, 75.5]


def test_the_fh_figure_has_a_point_per_row_and_the_papers_beside(tmp_path):
    cells, runs, written = runs_at(tmp_path, "fh", "paper", ["hfc"], seeds=1)
    points = {
        line.get_label(): (line.get_xdata()[0], line.get_ydata()[0])
        for line in fh_figure(lines(cells, runs), paper_of()).axes[0].lines
        if len(line.get_xdata()) == 1
    }
    mean = sum(written["cifar100-b0-t5-hfc@paper", 0]) / 5
    assert points["hfc"] == pytest.approx((100 * mean, 100 * mean))
    assert points["the paper's"] == (103.6, 86.4)
    alone = fh_figure(lines(cells, runs)).axes[0].lines
    assert all(line.get_label() != "the paper's" for line in alone)
