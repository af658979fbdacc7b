"""Recipes: one for every cell of the paper, every value with its source, through JSON and back."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

from avalanche_hfc.recipes import TABLES, Recipe, all_names, override, recipe
from avalanche_hfc.recipes.tables import FURTHER_TABLES, PaperCell
from avalanche_hfc.store.run_folder import RunFolder

ROOT = Path(__file__).parents[2]
NAMES = all_names()


def paper_cells(table):
    """The cells of a table that have a number of their own, as paper.csv has them."""
    whole = lambda text: int(text) if text else None  # noqa: E731
    with (ROOT / "experiments" / "paper.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            if row["table"] == table and row["num_steps"]:
                yield PaperCell(
                    row["row"],
                    row["losses"],
                    row["backbone"],
                    row["dataset"],
                    float(row["base_fraction"]),
                    int(row["num_steps"]),
                    whole(row["mem_size"]),
                    whole(row["per_class"]),
                )


def test_the_tables_are_those_of_the_paper():
    with (ROOT / "experiments" / "paper_tables.csv").open(newline="") as file:
        assert [row["table"] for row in csv.DictReader(file)] == list(TABLES)


@pytest.mark.parametrize("table", TABLES)
def test_at_scale_paper_a_table_has_the_cells_of_paper_csv_and_no_others(table):
    cells = [entry.cell for entry in TABLES[table]["paper"]]
    assert len(set(cells)) == len(cells) and set(cells) == set(paper_cells(table))


@pytest.mark.parametrize("table", TABLES)
def test_at_scale_small_a_table_has_the_same_cells_and_at_demo_one_column_for_each_base_fraction(
    table,
):
    paper, small, demo = (
        [entry.cell for entry in TABLES[table][scale]] for scale in ("paper", "small", "demo")
    )
    assert small == paper
    columns = {cell._replace(num_steps=0) for cell in paper}
    assert (
        len(demo) == len(columns)
        and {cell._replace(num_steps=0) for cell in demo} == columns
        and set(demo) <= set(paper)
    )


@pytest.mark.parametrize("table", {**TABLES, **FURTHER_TABLES})
def test_the_recipe_of_a_cell_is_what_the_cell_says(table):
    for scale, entries in {**TABLES, **FURTHER_TABLES}[table].items():
        for cell, name in entries:
            own = recipe(name)
            if cell.row not in ("joint", "avalanche-joint"):
                expected = {"paper": cell.num_steps, "small": cell.num_steps, "demo": 5}[scale]
                assert (own.data.base_fraction, own.data.num_steps) == (
                    cell.base_fraction,
                    expected,
                )
                assert dict(own.method.options).get("losses", "host") == (
                    "gfc" if "gfc" in cell.row else cell.losses
                )
            if scale == "paper":
                assert own.data.dataset == cell.dataset
                if own.memory.mem_size or own.memory.per_class:
                    assert (own.memory.mem_size, own.memory.per_class) == (
                        cell.mem_size,
                        cell.per_class,
                    )


@pytest.mark.parametrize(
    ("row", "method", "kind", "losses"),
    [
        ("baseline", "baseline", "vit", "host"),
        ("baseline+tsa", "baseline", "tsavit", "host"),
        ("baseline+tsa+gfc", "baseline", "tsavit", "gfc"),
        ("hfc", "hfc", "tsavit", None),
        ("dytox", "dytox", "dytox", "host"),
        ("podnet", "podnet", "vit", "host"),
    ],
)
@pytest.mark.parametrize("scale", ["paper", "small"])
def test_a_row_is_a_method_on_a_model_with_losses(row, method, kind, losses, scale):
    own = recipe(f"cifar100-b0-t10-{row}@{scale}")
    assert (own.method.name, own.model.kind, dict(own.method.options).get("losses")) == (
        method,
        kind,
        losses,
    )


def test_every_recipe_survives_json_and_says_of_every_value_where_it_comes_from():
    for name in NAMES:
        own = recipe(name)
        assert own.name == name and own.scale == name.split("@")[1]
        assert Recipe.from_dict(json.loads(json.dumps(own.as_dict()))) == own
        assert set(own.sources) == set(own.leaves()) and all(own.sources.values())


def test_a_recipe_of_the_paper_with_vit_base_trains_as_the_released_code():
    own = recipe("imagenet100-b50-t25-hfc@paper")
    assert own.data.image_size == 224 and own.memory.mem_size == 2000
    train = own.train
    assert (train.optimizer, train.lr, train.head_lr_factor, train.weight_decay) == (
        "adamw",
        6.25e-5,
        5,
        1e-5,
    )
    assert (
        train.epochs,
        train.batch_size,
        train.schedule,
        train.lowest_lr,
        train.warm_up_epochs,
    ) == (30, 64, "cosine", 1e-5, 3)
    assert own.sources["train.optimizer"] == "released code of HFC; the text says SGD"
    assert recipe("imagenet1000-b0-t5-hfc@paper").memory.mem_size == 20000


def test_names_of_a_scale_and_unknown_scales():
    assert {name.split("@")[1] for name in all_names("small")} == {"small"}
    assert sorted(NAMES) == sorted(
        name for scale in ("paper", "small", "demo") for name in all_names(scale)
    )
    with pytest.raises(ValueError, match="Did you mean 'paper'"):
        all_names("papr")


def test_a_misspelt_name_is_answered_with_near_ones():
    with pytest.raises(
        ValueError,
        match=r"Unknown recipe 'cifar100-b0-t10-hcf@paper'\. Did you mean .*cifar100-b0-t10-hfc@paper",
    ):
        recipe("cifar100-b0-t10-hcf@paper")


def test_listing_all_recipes_needs_no_torch():
    code = (
        "import sys; from avalanche_hfc.recipes import *; assert all_names(); "
        "print({'torch', 'numpy'} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert (result.stdout, result.stderr) == ("set()\n", "")


@pytest.mark.parametrize(
    ("part", "leaf"),
    [
        ("train", "schedule"),
        ("method", "relation_weight"),
        ("model", "kind"),
        ("data", "num_steps"),
    ],
)
def test_a_recipe_of_another_version_is_refused_with_the_leaf_that_it_lacks(part, leaf):
    held = json.loads(json.dumps(recipe("cifar100-b0-t5-hfc@paper").as_dict()))
    assert Recipe.from_dict(held) == recipe("cifar100-b0-t5-hfc@paper")
    value = held[part].pop(leaf)
    with pytest.raises(
        ValueError,
        match=rf"cifar100-b0-t5-hfc@paper lacks {part}\.{leaf}\b.* written by another version",
    ):
        Recipe.from_dict(held)
    held[part] |= {leaf: value, "momentun": 3}
    with pytest.raises(
        ValueError,
        match=rf"cifar100-b0-t5-hfc@paper has unknown {part}\.momentun: it was written by another version",
    ):
        Recipe.from_dict(held)


def with_old_names(held):
    """A recipe of HFC as version 0.1 wrote it: `form` was called `recipe`."""
    text = json.dumps(held).replace('"form":', '"recipe":').replace("method.form", "method.recipe")
    assert '"method.recipe"' in text and '"form"' not in text
    return json.loads(text)


def test_a_recipe_with_the_names_of_an_earlier_version_is_todays():
    own = override(recipe("digits-b0-t5-hfc@demo"), {"method.form": "paper"})
    assert Recipe.from_dict(with_old_names(own.as_dict())) == own


def test_the_folder_of_an_earlier_version_is_that_of_the_same_recipe(tmp_path):
    own = recipe("digits-b0-t5-hfc-official@demo")
    note = {"recipe": with_old_names(own.as_dict()), "seed": 0, "versions": {}, "machine": ""}
    (tmp_path / "recipe.json").write_text(json.dumps(note))
    RunFolder(tmp_path).check(own.as_dict(), 0)
    with pytest.raises(ValueError, match="method.form official, now default"):
        RunFolder(tmp_path).check(recipe("digits-b0-t5-hfc@demo").as_dict(), 0)
