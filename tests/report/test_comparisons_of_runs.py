"""What a report compares, what it marks as best, and what it says of single classes."""

import json
import math
import re

import pandas as pd
import pytest
from synthetic_runs import DIGITS, HUNDRED, METHODS, write_run, write_runs

from avalanche_hfc.lab.options import METHODS as ALL_METHODS
from avalanche_hfc.lab.read import read_runs
from avalanche_hfc.report.figures import (
    FOR_PRINT,
    MARKERS,
    METHOD_COLOURS,
    SERIES,
    Curve,
    LineKey,
    Panel,
    assign_colours,
    draw,
    marker_of,
)
from avalanche_hfc.report.numbers import (
    best_of,
    chance_levels,
    comparisons_of,
    confusion_shares,
    never_learned,
)
from avalanche_hfc.report.page import Heading, Heat, Plot, Report, Section, Table, as_html
from avalanche_hfc.report.sections import make_report


def change_recipe(path, **changes):
    """Write other values into recipe.json: `data={...}` changes a section, `name="x"` a value."""
    held = json.loads((path / "recipe.json").read_text())
    for name, value in changes.items():
        before = held["recipe"].get(name)
        held["recipe"][name] = {**(before or {}), **value} if isinstance(value, dict) else value
    (path / "recipe.json").write_text(json.dumps(held))
    return path


def change_accuracies(path, accuracies):
    """Write these accuracies, and the average that follows, into steps.csv."""
    steps = pd.read_csv(path / "steps.csv")
    averages = [sum(accuracies[: n + 1]) / (n + 1) for n in range(len(accuracies))]
    steps.assign(accuracy=accuracies, average=averages).to_csv(path / "steps.csv", index=False)


def blocks_of(report, name, kind):
    section = next(section for section in report.sections if section.name == name)
    found, blocks = [], list(section.blocks)
    while blocks:
        block = blocks.pop(0)
        found += [block] if isinstance(block, kind) else []
        blocks = [*getattr(block, "blocks", ()), *blocks]
    return found


def over(mean, std):
    return pd.DataFrame({"mean": [mean, mean], "std": [std, std]}, index=["last", "fh"])


def test_the_best_is_the_highest_accuracy_and_the_lowest_heterogeneity():
    numbers = [over(0.2, 0.05), over(0.7, 0.01), over(math.nan, math.nan), over(0.6, 0.02)]
    assert best_of(numbers, "last") == pytest.approx((1, 3, 0.1, 0.02))
    assert best_of(numbers, "fh") == pytest.approx((0, 3, 0.4, 0.05))
    assert best_of(numbers[1:3], "last") is None and best_of([numbers[0]] * 2, "last") is None
    assert math.isnan(best_of([over(0.2, math.nan), over(0.1, 0.1)], "last").spread)


@pytest.mark.parametrize(
    ("lead", "seeds", "in_cell", "in_sentence"),
    [
        (0.10, (0, 1), "best by 10.0, more than the spread", "more than the spread of the seeds"),
        (0.02, (0, 1), "best by 2.0, within the spread", "within the spread of the seeds, 2.8"),
        (0.02, (0,), "best by 2.0, spread unknown", "one seed cannot tell"),
    ],
)
def test_the_best_value_says_its_margin_and_whether_the_seeds_spread_more(
    tmp_path, lead, seeds, in_cell, in_sentence
):
    paths = write_runs(tmp_path, ("herding-replay", "hfc"), seeds, num_steps=2)
    for path in paths:
        shift = 0.04 * (path.name == "1") + lead * (path.parent.name == "hfc")
        change_accuracies(path, [0.5 + shift, 0.3 + shift])
    sentence, table = make_report(paths).sections[0].blocks
    assert [row[0].text for row in table.rows] == ["hfc", "herding-replay"]
    average = [row[1] for row in table.rows]
    assert average[0].best and average[0].below == in_cell and not average[1].best
    assert f"{100 * lead:.1f} points above herding-replay" in sentence
    assert in_sentence in sentence


def test_rows_are_ordered_by_result_and_a_recipe_with_fewer_steps_is_last_and_never_best(tmp_path):
    paths = dict(zip(METHODS, write_runs(tmp_path, METHODS, (0,), num_steps=3), strict=True))
    for level, path in enumerate(paths.values()):
        change_accuracies(path, [0.4 + level / 20] * 3)
    rows = pd.read_csv(paths["foster"] / "steps.csv").head(2)
    rows.to_csv(paths["foster"] / "steps.csv", index=False)
    table = make_report(paths.values()).sections[0].blocks[1]
    names = [row[0].text for row in table.rows]
    assert names == ["podnet", "icarl", "finetune", "herding-replay", "hfc", "foster"]
    assert table.rows[-1][0].below == "2 of 3 steps" and not any(c.best for c in table.rows[-1])
    assert table.rows[0][1].best


@pytest.mark.parametrize(
    "change",
    [
        {"data": {"base_fraction": 0.5}},
        {"data": {"num_steps": 3}},
        {"data": {"dataset": "other"}},
        {"data": {"class_order": list(DIGITS)}},
        {"own": {"data": "/photos"}},
    ],
    ids=str,
)
def test_runs_of_other_data_or_another_protocol_are_not_compared(tmp_path, change):
    paths = write_runs(tmp_path, ("hfc", "herding-replay"), (0,), num_steps=2)
    assert len(comparisons_of(read_runs(paths)[0])) == 1
    change_recipe(paths[1], **change)
    report = make_report(paths)
    headings = blocks_of(report, "results", Heading)
    tables = blocks_of(report, "results", Table)
    assert len(headings) == len(tables) == 2 and all(len(table.rows) == 1 for table in tables)
    assert not any("Highest" in text for text in blocks_of(report, "results", str))
    assert "Only runs with the same data and steps are compared" in report.subtitle
    colours = [
        curve.colour for plot in report.sections[1].blocks[1::3] for curve in plot.panels[0].curves
    ]
    assert colours == [0, None, 8, None]


def test_figures_of_two_protocols_have_ids_of_their_own(tmp_path):
    paths = write_runs(tmp_path, ("hfc", "herding-replay"), (0,), num_steps=2)
    change_recipe(paths[1], data={"num_steps": 3})
    ids = re.findall(r' id="([^"]+)"', as_html(make_report(paths)))
    assert len(ids) == len(set(ids)) > 8


def test_data_with_another_fingerprint_is_other_data(tmp_path):
    paths = write_runs(tmp_path, ("hfc", "herding-replay"), (0,), num_steps=2)
    for path, sha256 in zip(paths, ("a", "b"), strict=True):
        held = json.loads((path / "recipe.json").read_text())
        (path / "recipe.json").write_text(json.dumps({**held, "data": {"sha256": sha256}}))
    assert [len(own.groups) for own in comparisons_of(read_runs(paths)[0])] == [1, 1]


def test_chance_is_one_of_the_classes_seen_in_figure_and_caption(tmp_path):
    report = make_report([write_run(tmp_path)])
    assert chance_levels(pd.DataFrame({"step": [1, 0], "classes": [4, 2]})).tolist() == [0.5, 0.25]
    curve = report.sections[1].blocks[0].panels[0].curves[-1]
    assert curve.label == "chance" and curve.colour is None
    assert curve.points["mean"].tolist() == pytest.approx([50, 25, 100 / 6, 12.5, 10])
    average = sum((50, 25, 100 / 6, 12.5, 10)) / 5
    caption = report.sections[0].blocks[1].caption
    assert f"average {average:.1f} %, last 10.0 %" in caption


def test_a_class_never_above_chance_is_named_as_never_learned(tmp_path):
    path = write_run(tmp_path, names=("a", "b", "c", "d"), num_steps=2, nme=False)
    rows = pd.read_csv(path / "classes.csv")
    rows.loc[rows["name"] == "a", "correct"] = 25  # half of 50 images while two classes are seen
    rows.loc[(rows["name"] == "a") & (rows["step"] == 1), "correct"] = 12  # below 1 of 4
    rows.loc[rows["name"] == "c", "correct"] = 13  # above 1 of 4
    rows.loc[rows["name"] == "d", "correct"] = 0
    rows.to_csv(path / "classes.csv", index=False)
    texts = blocks_of(make_report([path]), "classes", str)
    assert "Never learned, as never above chance in any step: a, d (2 of 4 classes)." in texts
    index = pd.MultiIndex.from_tuples([(0, 0, "x")])
    assert never_learned(pd.DataFrame([[0.51]], index=index), pd.Series([0.5])) == []


@pytest.mark.parametrize("by_step", [False, True])
def test_the_confusion_matrix_holds_the_shares_of_a_loop_over_its_rows(tmp_path, by_step):
    paths = write_runs(tmp_path, ("hfc",), (0, 1), names=HUNDRED[:20], num_steps=4)
    images = {}
    for path in paths:
        for row in pd.read_csv(path / "confusion.csv").query("step == 3").itertuples():
            key = tuple(label // 5 if by_step else label for label in (row[2], row[3]))
            images[key] = images.get(key, 0) + row[4]
    shares = confusion_shares(read_runs(paths)[0], 3, by_step=by_step)
    size = 4 if by_step else 20
    assert shares.shape == (size, size)
    for row in range(size):
        total = sum(count for (label, _), count in images.items() if label == row)
        for column in range(size):
            assert shares.iat[row, column] == pytest.approx(images.get((row, column), 0) / total)
    assert confusion_shares(read_runs(paths)[0], 9) is None


def test_the_page_has_a_confusion_matrix_by_class_and_with_many_classes_by_step(tmp_path):
    few = blocks_of(make_report([write_run(tmp_path / "few")]), "classes", Heat)[1]
    assert few.corner == "predicted as" and few.columns == [str(n) for n in range(1, 11)]
    assert [row["name"] for row in few.tables[0]][:2] == ["1 zero", "2 one"]
    counts = pd.read_csv(tmp_path / "few" / "confusion.csv").query("step == 4 and `class` == 0")
    right = counts.loc[counts["predicted"] == 0, "count"].sum() / counts["count"].sum()
    assert few.tables[0][0]["cells"][0][1] == round(100 * right)
    many = write_run(tmp_path / "many", names=HUNDRED, num_steps=5)
    by_step = blocks_of(make_report([many]), "classes", Heat)[1]
    assert by_step.table.shape == (5, 5) and by_step.corner == "as step"


def test_title_date_and_machine_are_those_of_the_folder_and_its_runs(tmp_path):
    paths = write_runs(tmp_path / "my photos", num_steps=2, seeds=(0, 1))
    held = json.loads((paths[0] / "recipe.json").read_text())
    held |= {"finished": "2026-11-03T01:00:00+00:00", "machine": "cuda, one GPU"}
    (paths[0] / "recipe.json").write_text(json.dumps(held))
    report = make_report([tmp_path / "my photos"])
    assert report.title == "my photos"
    assert "Finished 2026-11-01 to 2026-11-03." in report.subtitle
    assert "cuda, one GPU; x86_64, 2 threads" in as_html(report)
    assert make_report([paths[0]]).title == "hfc/0"
    assert make_report(paths).title == "my photos"
    assert make_report(paths[:2]).title == "hfc/0, hfc/1"


def test_every_method_has_a_colour_of_its_own():
    assert sorted(METHOD_COLOURS) == sorted(ALL_METHODS)
    looks = [
        (colour % len(SERIES), colour // len(SERIES), marker_of(colour))
        for losses in ("host", "hfc")
        for colour in assign_colours(LineKey(name, losses) for name in ALL_METHODS).values()
    ]
    assert len(looks) == len(set(looks))


def test_a_method_has_the_same_colour_whatever_stands_beside_it(tmp_path):
    alone = make_report(write_runs(tmp_path / "alone", ("icarl",), (0,), num_steps=2))
    paths = write_runs(tmp_path / "all", METHODS, (0,), num_steps=2)
    change_recipe(paths[0], method={"name": "my.module:Mine"})
    report = make_report(paths)
    colours = {row[0].text: row[0].colour for row in report.sections[0].blocks[1].rows}
    assert colours["icarl"] == alone.sections[0].blocks[1].rows[0][0].colour == 1
    assert len({colour % len(SERIES) for colour in colours.values()}) == len(paths)
    curves = [
        curve
        for section in report.sections
        for block in section.blocks
        for panel in getattr(block, "panels", ())
        for curve in panel.curves
        if curve.colour is not None
    ]
    assert len(curves) > 20 and all(curve.colour == colours[curve.label] for curve in curves)


def test_a_point_of_a_scatter_has_its_marker_and_no_line_in_the_legends():
    points = pd.DataFrame({"mean": [50.0], "std": [math.nan]}, index=[3.0])
    panel = Panel("x", [Curve("hfc", points, 0), Curve("icarl", points, 1)])
    handles = draw([panel], FOR_PRINT).legends[0].legend_handles
    assert [handle.get_marker() for handle in handles] == ["o", "s"]
    assert {handle.get_linestyle() for handle in handles} == {"None"}
    block = Plot("scatter", "", "", [panel])
    page = as_html(Report("x", "x", [], [Section("a", "a", [block])]))
    legend = re.search(r'<ul class="legend">(.*?)</ul>', page, flags=re.DOTALL).group(1)
    assert MARKERS["o"] in legend and MARKERS["s"] in legend


@pytest.mark.filterwarnings("error")
def test_class_names_in_any_script_are_drawn_without_warnings(tmp_path):
    names = ("猫", "собака", "γάτα", "قطة", "แมว", "🐈", "$x_$ $", "a\u0301", "한국어", "𒀀")
    report = make_report([write_run(tmp_path, names=names)])
    html = as_html(report)
    assert all(name in html for name in names)


def learned(parent, folder, name="pets"):
    """A run that has learned two more classes after the steps of another, as `hfc learn` writes."""
    longer = write_run(folder, names=(*DIGITS[:4], "cat", "dog"), num_steps=3)
    for file in ("steps", "classes", "confusion", "exemplars", "train"):
        before = pd.read_csv(parent / f"{file}.csv")
        after = pd.read_csv(longer / f"{file}.csv")
        rows = pd.concat([before, after[after["step"] == 2]])
        rows.to_csv(longer / f"{file}.csv", index=False)
    recipe = json.loads((parent / "recipe.json").read_text())["recipe"]
    held = json.loads((longer / "recipe.json").read_text())
    held["recipe"] = {
        **recipe,
        "name": f"{recipe['name']}+{name}",
        "own": {"learn": [f"/x/{name}"]},
    }
    (longer / "recipe.json").write_text(json.dumps(held))
    return longer


def test_a_run_and_what_it_learned_later_are_one_line(tmp_path):
    parent = write_run(tmp_path / "0", names=DIGITS[:4], num_steps=2)
    child = learned(parent, tmp_path / "0+pets")
    report = make_report([tmp_path])
    plot = report.sections[1].blocks[0]
    ours, _ = plot.panels[0].curves
    steps = pd.read_csv(child / "steps.csv")
    assert ours.points["mean"].tolist() == pytest.approx((100 * steps["accuracy"]).tolist())
    assert ours.points["mean"].tolist()[:2] == pytest.approx(
        (100 * pd.read_csv(parent / "steps.csv")["accuracy"]).tolist()
    )
    assert plot.panels[0].starts == [1.5]
    sentence, table, later = report.sections[0].blocks
    assert "Highest" not in sentence and len(table.rows) == 1
    classes = pd.read_csv(child / "classes.csv")

    def percent(rows):
        return f"{100 * rows['correct'].sum() / rows['total'].sum():.1f}"

    old, after = classes["brought_in"] < 2, classes["step"] == 2
    assert [cell.text for cell in later.rows[0]] == [
        "pets",
        "2",
        percent(classes[classes["step"] == 1]),
        percent(classes[old & after]),
        percent(classes[~old & after]),
    ]
