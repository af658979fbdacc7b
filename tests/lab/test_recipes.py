"""Recipes: one for every cell of the paper, every value with its source, through JSON and back."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

from avalanche_hfc.lab import TABLES, Recipe, all_names, recipe, settings
from avalanche_hfc.lab.tables import FURTHER_TABLES, PaperCell

pytestmark = pytest.mark.quick

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
def test_at_scale_demo_a_table_has_one_column_for_each_base_fraction(table):
    paper, demo = ([entry.cell for entry in TABLES[table][scale]] for scale in ("paper", "demo"))
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
                expected = 5 if scale == "demo" else cell.num_steps
                assert (own.data.base_fraction, own.data.num_steps) == (
                    cell.base_fraction,
                    expected,
                )
                part = next((word for word in ("gfc", "grd") if word in cell.row), cell.losses)
                assert dict(own.method.options).get("losses", "host") == part
            if scale != "demo":
                assert own.data.dataset == cell.dataset
                if own.memory.mem_size or own.memory.per_class:
                    assert (kept(own, scale), own.memory.per_class) == (
                        cell.mem_size,
                        cell.per_class,
                    )


def kept(own, scale):
    """Exemplars in total; at scale small those that Avalanche's BiC keeps for its correction, too,
    a tenth of the others.
    """
    total = own.memory.mem_size
    validated = scale in ("small", "medium") and own.method.name.startswith("avalanche-bic")
    return total + int(0.1 * total) if validated else total


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
    own = recipe(f"cifar100-b0-t5-{row}@{scale}")
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
        name for scale in ("paper", "small", "medium", "demo") for name in all_names(scale)
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
        "import sys; from avalanche_hfc.lab import *; assert all_names(); "
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
    held[part] |= {leaf: value, "a_constant_today": 3}
    assert Recipe.from_dict(held).leaves() == recipe("cifar100-b0-t5-hfc@paper").leaves()


# The scales small and medium


def test_small_is_20_classes_in_5_or_10_steps_with_200_exemplars_and_a_vit_of_six_blocks():
    for name in all_names("small"):
        own = recipe(name)
        data, options = own.data, dict(own.model.options)
        assert (data.dataset, data.num_classes, data.train_per_class, data.test_per_class) == (
            "cifar100",
            20,
            250,
            50,
        )
        assert data.num_steps in ((1,) if own.method.name.endswith("joint") else (5, 10))
        assert options["msa_blocks"] + (own.model.kind != "vit") == 6
        assert (options["embed_dim"], options["num_heads"], options["patch_size"]) == (192, 3, 8)
        assert (options["weights"] is None) == ("-random-" in name)
        assert (data.class_order is None) == ("-orders-" in name)
        if "-m" not in name.split("-t")[1] and own.memory.per_class is None:
            assert kept(own, "small") in (200, None)


def test_medium_is_all_classes_in_10_steps_with_1000_exemplars():
    entries = FURTHER_TABLES["comparison"]["medium"]
    assert [entry.cell.row for entry in entries] == ["hfc", "herding-replay", "podnet", "ncm"]
    for _, name in entries:
        own = recipe(name)
        assert (own.data.num_classes, own.data.num_steps) == (None, 10)
        assert own.memory.mem_size == (None if own.method.name == "ncm" else 1000)
        small = recipe(f"cifar100-b0-t10-{own.method.name}@small")
        assert own.model == small.model and own.train == small.train


def test_the_tables_of_scale_small_have_the_rows_of_the_protocol():
    rows = {
        table: [(entry.cell.row, entry.cell.losses) for entry in scales["small"]]
        for table, scales in {**TABLES, **FURTHER_TABLES}.items()
        if "small" in scales
    }
    compared = {row for row, _ in rows["comparison"]}
    assert len(rows["comparison"]) == len(compared) == 24
    assert {"hfc", "hfc-paper", "hfc-official", "joint", "ncm", "ranpac", "wa"} <= compared
    assert {row for row, _ in rows["protocols"]} <= compared and len(rows["protocols"]) == 14
    hosts = [row for row, losses in rows["plug-and-play"] if losses == "host"]
    assert rows["plug-and-play"] == [(row, losses) for losses in ("host", "hfc") for row in hosts]
    assert len(hosts) == 13
    per_class = [entry.cell.per_class for entry in FURTHER_TABLES["memory"]["small"]]
    assert sorted(set(per_class)) == [5, 10, 20, 50] and len(per_class) == 16
    assert {name for name in rows if "imagenet" in name} == set()


def test_a_tuned_value_enters_every_recipe_of_its_method_at_the_small_scales(monkeypatch):
    names = ["cifar100-b0-t5-podnet+hfc@small", "cifar100-b0-t10-podnet@medium"]
    others = ["cifar100-b0-t5-podnet@paper", "cifar100-b0-t5-podnet-cscct@small"]
    before = {name: recipe(name).train.lr for name in [*names, *others]}
    monkeypatch.setattr(settings, "TUNED", {**settings.TUNED, "podnet": {"train.lr": 0.125}})
    recipe.cache_clear()
    for name in names:
        own = recipe(name)
        assert own.train.lr == 0.125 and "held-out" in own.sources["train.lr"]
    assert [recipe(name).train.lr for name in others] == [before[name] for name in others]
    monkeypatch.undo()
    recipe.cache_clear()
    assert {name: recipe(name).train.lr for name in before} == before
