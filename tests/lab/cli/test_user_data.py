"""Your data, backbone and method through the same command."""

import json
import shutil
import sys

import numpy as np
import pandas as pd
import pytest
from image_folders import COLOURS, TINY, content, hfc, make_folder, noisy

from avalanche_hfc.lab import Recipe, override, recipe
from avalanche_hfc.lab.build import build_model, build_strategy
from avalanche_hfc.lab.describe import command
from avalanche_hfc.lab.overrides import with_data

METHODS = """
from avalanche.training.supervised import Naive
from avalanche.training.templates import SupervisedTemplate
from torch.nn import CrossEntropyLoss
from avalanche_hfc.strategies import HerdingReplay

class Scaled(HerdingReplay):
    def __init__(self, *, factor: float = 1.0, word="plain", limit=None, **kwargs):
        super().__init__(**kwargs)
        self.factor, self.word, self.limit = factor, word, limit

    def classification(self, logits, targets, steps):
        return self.factor * super().classification(logits, targets, steps)

class Bare(Naive):
    pass

class NoEpochs(SupervisedTemplate):
    def __init__(self, *, model, optimizer, train_mb_size=1, eval_mb_size=1, device="cpu", evaluator=None, plugins=None):
        super().__init__(model=model, optimizer=optimizer, criterion=CrossEntropyLoss())

class Needs(HerdingReplay):
    def __init__(self, *, strength, **kwargs):
        super().__init__(**kwargs)

class NotAMethod:
    pass
"""


@pytest.fixture
def methods(tmp_path, monkeypatch):
    """A folder with a module mymethods, as the current one."""
    (tmp_path / "mymethods.py").write_text(METHODS)
    (tmp_path / "broken.py").write_text("import a_package_that_is_nowhere\n")
    (tmp_path / "falling.py").write_text("1 / 0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    recipe.cache_clear()
    yield tmp_path
    recipe.cache_clear()
    sys.modules.pop("mymethods", None)


# Names


@pytest.mark.parametrize(
    ("short", "full"),
    [
        ("folder", "folder-b0-t5-hfc@small"),
        ("npz-t4-podnet@demo", "npz-b0-t4-podnet@demo"),
        (
            "folder-b50-m3-podnet-cscct+hfc-resnet32",
            "folder-b50-t5-m3-podnet-cscct+hfc-resnet32@small",
        ),
        ("folder-baseline+tsa+gfc@paper", "folder-b0-t5-baseline+tsa+gfc@paper"),
        ("folder-convit@demo", "folder-b0-t5-hfc-convit@demo"),
    ],
)
def test_what_a_name_leaves_out_is_filled_in(short, full):
    own = recipe(short)
    assert own == recipe(full) and own.name == full
    assert Recipe.from_dict(json.loads(json.dumps(own.as_dict()))) == own
    assert set(own.sources) == set(own.leaves()) and own.data.dataset == full.split("-")[0]


def test_a_name_is_what_it_says():
    own = recipe("folder-b50-t3-m4-podnet+hfc-resnet18@small")
    assert (
        own.data.base_fraction,
        own.data.num_steps,
        own.memory.per_class,
        own.memory.mem_size,
    ) == (0.5, 3, 4, None)
    assert (own.method.name, own.model.kind, dict(own.method.options)["losses"]) == (
        "podnet",
        "resnet18",
        "hfc",
    )
    assert (
        dict(recipe("npz@demo").model.options)["in_channels"] == 3 and own.data.class_order is None
    )


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("folder-podnt", r"Unknown method 'podnt'.*Did you mean podnet.*module:Class"),
        ("folder-7", "Unknown method '7'"),
        ("folder@smal", "Unknown scale 'smal'.*Did you mean 'small'"),
        ("folder-b30", "must be b0, equal steps, or b50"),
        ("folder-hfc+hfc", r"hfc does not take the losses of HFC: leave out \+hfc"),
        (
            "npz-m3-finetune",
            "finetune does not take a number of exemplars per class: leave out -m3",
        ),
        ("npz-m3-avalanche-replay", "leave out -m3"),
        ("folder-hfc-resnet18@paper", "no training of hfc with this backbone is published"),
        (
            "digit-t5-some:Class@demo",
            "Unknown data set at scale demo 'digit'.*Did you mean 'digits'",
        ),
    ],
)
def test_a_name_that_is_not_understood_is_answered_with_what_is_wrong(name, said):
    with pytest.raises(ValueError, match=said):
        recipe(name)


# Data


def test_a_folder_of_images_is_trained_on_and_its_classes_are_named(tmp_path):
    images = make_folder(tmp_path / "images", ["ant", "bee", "cat", "dog"])
    said = hfc("run", "folder-t2@demo", "--data", images, "--out", tmp_path / "runs", *TINY)
    folder = tmp_path / "runs" / "folder-b0-t2-hfc@demo" / "0"
    assert str(folder) in said
    classes = pd.read_csv(folder / "classes.csv")
    assert dict(zip(classes["class"], classes["name"], strict=True)) == dict(
        enumerate(["ant", "bee", "cat", "dog"])
    )
    assert (classes.groupby("step")["total"].sum() == [4, 8]).all()  # two test images of each class
    before = content(folder)
    same = shutil.copytree(images, tmp_path / "same")
    hfc("run", "folder-t2@demo", "--data", same, "--out", tmp_path / "runs", *TINY)
    other = make_folder(tmp_path / "other", ["ant", "bee", "cat", "dog"], count=8)
    with pytest.raises(ValueError, match="data is not what .* trained on .*new: ant/7.png"):
        hfc("run", "folder-t2@demo", "--data", other, "--out", tmp_path / "runs", *TINY)
    assert content(folder) == before


def test_an_npz_file_is_trained_on_by_another_method(tmp_path):
    names = ["ant", "bee", "cat", "dog"]
    arrays = {
        f"{letter}_{part}": value
        for part, seeds in (("train", range(5)), ("test", range(5, 7)))
        for letter, value in (
            ("x", np.stack([noisy(name, seed) for name in names for seed in seeds])),
            ("y", np.repeat(np.arange(4), len(seeds))),
        )
    }
    np.savez(tmp_path / "mine.npz", class_names=np.array(names), **arrays)
    hfc(
        "run",
        "npz-t2-herding-replay@demo",
        "--data",
        tmp_path / "mine.npz",
        "--out",
        tmp_path / "runs",
        *TINY,
    )
    folder = tmp_path / "runs" / "npz-b0-t2-herding-replay@demo" / "0"
    classes = pd.read_csv(folder / "classes.csv")
    assert sorted(classes[classes["step"] == 1]["name"]) == names
    assert len(pd.read_csv(folder / "exemplars.csv").query("step == 1")) == 12
    held = json.loads((folder / "recipe.json").read_text())["recipe"]
    assert command(Recipe.from_dict(held)).startswith(
        f"hfc run npz-b0-t2-herding-replay@demo --data {tmp_path / 'mine.npz'}"
    )


@pytest.mark.parametrize(
    ("name", "said"), [("folder@demo", "No folder .*nowhere"), ("npz@demo", "No file .*nowhere")]
)
def test_data_that_is_not_there_or_not_named_is_told_and_nothing_is_written(tmp_path, name, said):
    with pytest.raises(FileNotFoundError, match=said):
        hfc("run", name, "--data", tmp_path / "nowhere", "--out", tmp_path / "runs")
    with pytest.raises(ValueError, match="with --data"):
        hfc("run", name, "--out", tmp_path / "runs")
    assert list(tmp_path.iterdir()) == []


def test_only_the_users_data_is_noted_in_a_recipe(tmp_path):
    assert with_data(recipe("digits-b0-t5-hfc@demo"), None) == recipe("digits-b0-t5-hfc@demo")
    assert with_data(recipe("folder"), tmp_path).paths == {"data": str(tmp_path)}


# Backbone


def test_another_backbone_of_timm_comes_with_its_own_geometry():
    own = override(
        recipe("folder@small"),
        {"model.backbone": "vit_small_patch16_224", "image_size": "32", "num_heads": "3"},
    )
    model = build_model(own, "meta")
    assert (model.embed_dim, model.num_heads, model.msa_blocks) == (384, 3, 11)
    assert model.backbone.patch_embed.patch_size == (16, 16)
    assert dict(own.model.options)["weights"] is None  # those of the package fit another backbone
    same = override(
        recipe("folder@small"),
        {"model.backbone": dict(recipe("folder@small").model.options)["backbone"]},
    )
    assert same.leaves() == recipe("folder@small").leaves()


def test_a_backbone_that_timm_does_not_have_is_answered_with_near_ones():
    with pytest.raises(
        ValueError,
        match="Unknown backbone 'vit_smal_patch16_224'. Did you mean .*vit_small_patch16_224",
    ):
        build_model(
            override(recipe("folder@small"), {"model.backbone": "vit_smal_patch16_224"}), "meta"
        )


# Method


def test_the_arguments_of_a_user_s_class_are_options_of_the_recipe(methods):
    own = recipe("folder-t2-mymethods:Scaled@demo")
    assert (
        own.name == "folder-b0-t2-mymethods:Scaled@demo"
        and own.model.kind == "vit"
        and own.memory.per_class == 20
    )
    assert (
        dict(own.method.options).items()
        >= {"factor": 1.0, "word": "plain", "limit": None, "losses": "host"}.items()
    )
    changed = override(own, {"factor": "2", "method.word": "loud", "limit": "0.5"})
    assert Recipe.from_dict(json.loads(json.dumps(changed.as_dict()))) == changed
    strategy = build_strategy(changed, build_model(changed))
    assert (type(strategy).__name__, strategy.factor, strategy.word, strategy.limit) == (
        "Scaled",
        2.0,
        "loud",
        0.5,
    )
    with pytest.raises(ValueError, match="method.factor must be a number, got 'much'"):
        override(own, {"factor": "much"})


def test_a_class_of_avalanche_without_a_memory_gets_none_and_goes_on_data_of_the_paper_too(methods):
    own = recipe("cifar100-t10-mymethods:Bare@small")
    assert (own.memory.mem_size, own.memory.per_class, own.method.options) == (None, None, ())
    assert own.data == recipe("cifar100-b0-t10-hfc@small").data


def test_a_user_s_method_is_run_by_the_same_command_and_its_loss_is_what_is_minimised(methods):
    images = make_folder(methods / "images", list(COLOURS)[:4])
    losses = {}
    for factor in ("1", "3"):
        hfc(
            "run",
            "folder-t2-mymethods:Scaled@demo",
            "--data",
            images,
            "--out",
            methods / factor,
            "--factor",
            factor,
            *TINY,
            "--lr",
            "1e-9",
            "--weight-decay",
            "0",
        )
        rows = pd.read_csv(
            methods / factor / "folder-b0-t2-mymethods:Scaled@demo" / "0" / "train.csv"
        )
        losses[factor] = rows["loss_total"].to_numpy()
    np.testing.assert_allclose(losses["3"], 3 * losses["1"], rtol=1e-4)


@pytest.mark.parametrize(
    ("method", "said"),
    [
        (
            "mymethod:Scaled",
            "cannot be imported .*No module named 'mymethod'",
        ),
        ("mymethods.deep:Scaled", "'mymethods' is not a package"),
        ("mymethods:Scale", "module 'mymethods' has no attribute 'Scale'"),
        (
            "mymethods:NotAMethod",
            "must be a subclass of avalanche.training.templates.SupervisedTemplate",
        ),
        ("mymethods:NoEpochs", "__init__ must take train_epochs by keyword"),
        ("mymethods:Needs", "__init__ needs strength. Give each a default"),
        ("broken:Mine", "No module named 'a_package_that_is_nowhere'"),
        ("falling:Mine", "cannot be imported .*ZeroDivisionError: division by zero"),
        ("mymethods:", "must be a subclass"),
    ],
)
def test_what_is_wrong_with_a_user_s_method_is_named(methods, method, said):
    with pytest.raises(ValueError, match=said):
        recipe(f"folder-{method}@demo")


def test_a_table_has_rows_of_your_method_as_it_is_and_with_both_losses(methods):
    (methods / "mine.py").write_text(
        "from avalanche_hfc.strategies import HerdingReplay\nclass Own(HerdingReplay):\n    pass\n"
    )
    added = ("--add", "mine:Own", "--add", "mine:Own+hfc")
    said = hfc("table", "methods", "--only", "herding-replay", *added, "--epochs", "1")
    lines = [line.split("|") for line in said.splitlines() if line.startswith("| `")]
    table = {line[1].strip(): [cell.strip() for cell in line[2:-1]] for line in lines}
    assert table["`mine:Own`"][:2] == table["`herding-replay`"][:2]  # the same method
    assert table["`mine:Own`"][2] != "–" == table["`herding-replay`"][2]
    assert sorted(path.name for path in (methods / "runs").glob("digits*")) == [
        "digits-b0-t5-herding-replay@demo",
        "digits-b0-t5-mine:Own+hfc@demo",
        "digits-b0-t5-mine:Own@demo",
    ]


def test_a_table_of_another_number_of_steps_is_filled_by_runs_of_that_name(tmp_path):
    options = ("--only", "finetune", "--epochs", "1", "--num-steps", "2", "--out", tmp_path)
    said = hfc("table", "methods", *options)
    steps = pd.read_csv(tmp_path / "digits-b0-t2-finetune@demo" / "0" / "steps.csv")
    assert len(steps) == 2
    assert f"| `finetune` | {100 * steps['average'].iloc[-1]:.1f} |" in said
