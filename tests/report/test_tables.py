"""Our numbers beside the paper's, and the three forms of the table."""

import math

import pandas as pd
import pytest

from avalanche_hfc.report.tables import compare, latex, markdown, paper_grid, write_table

SETTING = dict(
    losses="host",
    backbone="vit-base",
    dataset="cifar100",
    base_fraction=0.0,
    mem_size=2000,
    per_class=None,
)


def printed(row, num_steps, value, mark=None, **other):
    return {
        "table": "cifar100",
        "row": row,
        **SETTING,
        "num_steps": num_steps,
        "column": "average",
        "value": value,
        "mark": mark,
        **other,
    }


def paper():
    return pd.DataFrame(
        [
            printed("icarl", 5, 83.5),
            printed("icarl", 10, 80.6),
            printed("hfc", 5, 84.7, "85.1 in fh & 5 % off"),
            printed("hfc", 10, 84.0),
        ]
    )


def ours():
    measured = {
        ("hfc", 5): (84.0, 85.0, 86.0),
        ("hfc", 10): (80.0,),
        ("icarl", 5): (82.0, 84.0),
        ("afc", 5): (70.0,),
    }
    return pd.DataFrame(
        [
            {
                "row": row,
                **SETTING,
                "num_steps": num_steps,
                "column": "average",
                "seed": seed,
                "value": value,
            }
            for (row, num_steps), values in measured.items()
            for seed, value in enumerate(values)
        ]
    )


def cell(table, row, num_steps):
    return table[(table["row"] == row) & (table["num_steps"] == num_steps)].iloc[0]


def test_a_gap_is_the_mean_over_seeds_minus_the_papers_number():
    table = compare(ours(), paper())
    own = cell(table, "hfc", 5)
    assert (own["ours"], own["std"], own["num_seeds"], own["paper"]) == (85.0, 1.0, 3, 84.7)
    assert own["gap"] == pytest.approx(0.3) and own["mark"] == "85.1 in fh & 5 % off"
    single = cell(table, "hfc", 10)
    assert single["num_seeds"] == 1 and math.isnan(single["std"]) and single["gap"] == -4.0


def test_rows_of_the_paper_keep_their_order_and_what_only_we_have_follows():
    table = compare(ours(), paper())
    assert list(zip(table["row"], table["num_steps"], strict=True)) == [
        ("icarl", 5),
        ("icarl", 10),
        ("hfc", 5),
        ("hfc", 10),
        ("afc", 5),
    ]
    missing, alone = cell(table, "icarl", 10), cell(table, "afc", 5)
    assert (
        missing["num_seeds"] == 0
        and math.isnan(missing["ours"])
        and math.isnan(missing["gap"])
        and missing["paper"] == 80.6
    )
    assert alone["ours"] == 70.0 and math.isnan(alone["paper"]) and math.isnan(alone["gap"])


def test_a_key_that_differs_is_another_number_and_its_type_does_not_matter():
    other = ours().query("row == 'hfc' and num_steps == 5")
    for change in (
        dict(backbone="resnet-32"),
        dict(losses="hfc"),
        dict(mem_size=None, per_class=20),
        dict(base_fraction=0.5),
    ):
        assert compare(other.assign(**change), paper())["gap"].isna().all(), change
    assert compare(other.assign(num_steps="5", mem_size="2000"), paper())["gap"].notna().sum() == 1


def test_a_number_printed_twice_is_the_first_and_its_mark_says_so():
    twice = pd.concat(
        [paper(), pd.DataFrame([printed("hfc", 5, 85.1, "84.7 in cifar100", table="fh")])]
    )
    first = cell(compare(ours(), twice), "hfc", 5)
    assert first["paper"] == 84.7 and first["mark"] == "85.1 in fh & 5 % off; printed again as 85.1"


def test_the_markdown_has_ours_paper_and_gap_below_each_other():
    assert markdown(paper_grid(compare(ours(), paper())), "Comparison") == (
        "**Comparison**\n\n"
        "|  |  | T = 5, average | T = 10, average |\n"
        "| --- | --- | ---: | ---: |\n"
        "| icarl | ours, 2 seeds | 83.0 ± 1.4 | – |\n"
        "|  | paper | 83.5 | 80.6 |\n"
        "|  | gap | −0.5 | – |\n"
        "| hfc | ours, 1 – 3 seeds | 85.0 ± 1.0 | 80.0 |\n"
        "|  | paper | 84.7 (a) | 84.0 |\n"
        "|  | gap | +0.3 | −4.0 |\n"
        "| afc | ours, 1 seed | 70.0 | – |\n"
        "|  | paper | – | – |\n"
        "|  | gap | – | – |\n\n"
        "vit-base, cifar100, B = 0%, M = 2000. Ours: mean ± standard deviation over seeds. Gap: ours − paper.\n\n"
        "- a: 85.1 in fh & 5 % off\n"
    )


def test_the_latex_escapes_what_latex_would_read_and_has_a_cell_per_column():
    text = latex(paper_grid(compare(ours().replace("afc", "a_fc"), paper())), "Comparison")
    assert (
        r"85.0 $\pm$ 1.0 & 80.0 \\" in text
        and r" & gap & $+$".replace("$+$", "+0.3") + r" & $-$4.0 \\" in text
    )
    assert r"a\_fc" in text and r"a: 85.1 in fh \& 5 \% off." in text and r"B = 0\%" in text
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert len(rows) == 10 and {line.count("&") - line.count(r"\&") for line in rows} == {3}
    assert r"\begin{tabular}{llrr}" in text and text.count(r"\begin") == text.count(r"\end")


def test_rows_and_backbones_that_vary_are_told_apart_in_the_lines():
    losses = pd.concat([paper(), paper().assign(losses="hfc", value=90.0, mark=None)])
    text = markdown(paper_grid(compare(ours(), losses)))
    assert (
        "| icarl, with both losses | ours, 0 seeds |" in text
        and "| icarl | ours, 2 seeds |" in text
    )


def test_the_files_can_be_deleted_and_made_again(tmp_path):
    table = compare(ours(), paper()).assign(scale="paper")
    paths = write_table("cifar100", table, tmp_path / "tables", "cifar100")
    before = {path.name: path.read_bytes() for path in paths}
    assert sorted(before) == ["cifar100.csv", "cifar100.md", "cifar100.tex"]
    for path in paths:
        path.unlink()
    write_table("cifar100", table, tmp_path / "tables", "cifar100")
    assert {path.name: path.read_bytes() for path in paths} == before
    pd.testing.assert_frame_equal(
        pd.read_csv(paths[0]).drop(columns="mark"), table.drop(columns="mark"), check_dtype=False
    )
