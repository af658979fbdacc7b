"""Values a user gives: read by the leaf's type, checked, told apart from the recipe's own."""

import json

import pytest

from avalanche_hfc.lab import Recipe, override, recipe
from avalanche_hfc.lab.describe import command, text_of

pytestmark = pytest.mark.quick

HFC = recipe("cifar100-b0-t10-hfc@paper")
FOSTER = recipe("cifar100-b0-t10-foster-resnet32@paper")
RESNET = recipe("cifar100-b0-t10-bic+hfc-resnet32@paper")


@pytest.mark.parametrize(
    ("own", "name", "text", "leaf", "value"),
    [
        (HFC, "epochs", "3", "train.epochs", 3),
        (HFC, "train.epochs", " 3 ", "train.epochs", 3),
        (HFC, "method.relation_weight", "0.5", "method.relation_weight", 0.5),
        (HFC, "method.relation-weight", "balanced", "method.relation_weight", "balanced"),
        (FOSTER, "compress_epochs", "none", "method.compress_epochs", None),
        (FOSTER, "beta", "0.97, 0.96", "method.beta", (0.97, 0.96)),
        (FOSTER, "beta", "0.95", "method.beta", 0.95),
        (HFC, "form", "official", "method.form", "official"),
        (HFC, "residual", "true", "model.residual", True),
        (HFC, "lr", "1", "train.lr", 1.0),
        (HFC, "class_order", "none", "data.class_order", None),
        (HFC, "weights", "my/weights.pth", "model.weights", "my/weights.pth"),
        (HFC, "base_fraction", "0.5", "data.base_fraction", 0.5),
        (RESNET, "drops_at", "0.5,0.75", "train.drops_at", (0.5, 0.75)),
        (RESNET, "decay_by_step", "True", "train.decay_by_step", True),
    ],
)
def test_a_text_becomes_a_value_of_the_leafs_type(own, name, text, leaf, value):
    changed = override(own, {name: text})
    assert changed.leaves()[leaf] == value and type(changed.leaves()[leaf]) is type(value)
    assert (
        (changed.base or changed.name) == own.name
        and changed.overrides == {leaf: value}
        and changed.sources[leaf] == "given by the user"
    )
    assert {key for key, before in own.leaves().items() if changed.leaves()[key] != before} == {
        leaf
    }
    assert Recipe.from_dict(json.loads(json.dumps(changed.as_dict()))) == changed
    again = command(changed).split(f"--{leaf.replace('_', '-')}=")[1]
    assert override(own, {leaf: again}) == changed


@pytest.mark.parametrize(
    ("own", "given", "said"),
    [
        (HFC, {"epoch": "3"}, "no value 'epoch'. Did you mean train.epochs"),
        (HFC, {"method.relation_weigth": "1"}, "Did you mean method.relation_weight"),
        (HFC, {"fish": "3"}, f"no value 'fish'. `hfc show {HFC.name}` lists its values."),
        (HFC, {"epochs": "many"}, "train.epochs must be a whole number, got 'many'"),
        (HFC, {"epochs": "1.5"}, "train.epochs must be a whole number, got '1.5'"),
        (HFC, {"epochs": "none"}, "train.epochs must be a whole number, got 'none'"),
        (HFC, {"epochs": "0"}, "train.epochs must be a number above 0, got 0"),
        (HFC, {"lr": "-1"}, "train.lr must be a number above 0"),
        (HFC, {"lr": "inf"}, "train.lr must be a number above 0, got inf"),
        (HFC, {"lr": "nan"}, "train.lr must be a number above 0"),
        (
            HFC,
            {"relation_weight": "balancd"},
            "method.relation_weight must be a number, balanced or none, got 'balancd'",
        ),
        (
            HFC,
            {"transforms": "plane"},
            "data.transforms must be dytox, official, plain or flip-crop, got 'plane'",
        ),
        (HFC, {"residual": "1"}, "model.residual must be true or false, got '1'"),
        (HFC, {"model.kind": "vit"}, "model.kind cannot be changed"),
        (HFC, {"method.name": "icarl"}, "method.name cannot be changed"),
        (HFC, {"base_fraction": "0.4"}, "data.base_fraction must be 0 or 0.5, got 0.4"),
        (HFC, {"epochs": "3", "train.epochs": "4"}, "train.epochs is given more than once"),
        (
            HFC,
            {"mem_size": "3", "per_class": "4"},
            "give mem_size or per_class, not both; got 3 and 4",
        ),
        (HFC, {"mem_size": "none"}, "hfc needs mem_size or per_class"),
        (HFC, {"momentum": "0.9"}, "momentum has no effect without optimizer=sgd"),
        (HFC, {"optimizer": "sgd"}, "momentum is needed with optimizer=sgd"),
        (HFC, {"drop_factor": "0.1"}, "drop_factor has no effect without schedule=drops"),
        (
            HFC,
            {"schedule": "drops"},
            "lowest_lr has no effect without schedule=cosine",
        ),
        (RESNET, {"drops_at": "0.8,0.5"}, "increasing fractions"),
        (
            FOSTER,
            {"beta": "0.9,"},
            "method.beta must be a number or numbers with commas between, got '0.9,'",
        ),
        (
            FOSTER,
            {"beta": "none"},
            "method.beta must be a number or numbers with commas between, got 'none'",
        ),
        (RESNET, {"drops_at": "80,120"}, "increasing fractions"),
        (RESNET, {"warm_up_lr": "0.1"}, "warm_up_lr has no effect without warm_up_epochs"),
        (RESNET, {"schedule_delay": "-1"}, "train.schedule_delay must be 0 or more, got -1"),
        (
            recipe("digits-b0-t5-hfc@demo"),
            {"schedule_delay": "1"},
            "a constant rate without warm-up has nothing to delay",
        ),
        (
            recipe("cifar100-b0-t5-avalanche-bic-fixed@paper"),
            {"lr": "1"},
            "'lr' is not unique .*: say train.lr or method.lr",
        ),
        (
            recipe("cifar100-b0-t5-avalanche-replay@paper"),
            {"per_class": "20"},
            "takes mem_size, not per_class",
        ),
        (recipe("cifar100-b0-t5-finetune@paper"), {"mem_size": "20"}, "finetune keeps no memory"),
    ],
)
def test_what_cannot_be_is_refused_with_the_value_and_what_is_allowed(own, given, said):
    with pytest.raises(ValueError, match=said):
        override(own, given)


def test_a_memory_per_class_takes_the_place_of_a_total_and_back():
    per_class = override(HFC, {"per_class": "20"})
    assert (per_class.memory.mem_size, per_class.memory.per_class) == (None, 20)
    assert per_class.overrides == {"memory.per_class": 20, "memory.mem_size": None}
    total = override(per_class, {"mem_size": "500"})
    assert (total.memory.mem_size, total.memory.per_class) == (500, None)


def test_the_recipes_own_value_is_no_override():
    assert override(HFC, {"epochs": "30", "per_class": "none"}) == HFC


def test_overrides_add_up():
    changed = override(override(HFC, {"epochs": "3", "lr": "0.1"}), {"epochs": "4"})
    assert changed.overrides == {"train.epochs": 4, "train.lr": 0.1}
    assert override(HFC, {}) == HFC


def test_values_as_text_are_what_override_reads():
    assert [text_of(value) for value in (None, True, False, 1e-5, 3, (), (0.5, 0.75), "word")] == [
        "none",
        "true",
        "false",
        "1e-05",
        "3",
        "none",
        "0.5,0.75",
        "word",
    ]


@pytest.mark.parametrize(
    ("own", "given", "name"),
    [
        (HFC, {"num_steps": "3"}, "cifar100-b0-t3-hfc@paper"),
        (HFC, {"base_fraction": "0.5", "per_class": "7"}, "cifar100-b50-t10-m7-hfc@paper"),
        (recipe("folder-t5-m3@small"), {"mem_size": "9"}, "folder-b0-t5-hfc@small"),
        (recipe("folder-t5@small"), {"mem_size": "9", "epochs": "2"}, "folder-b0-t5-hfc@small"),
    ],
)
def test_the_name_says_the_protocol_and_the_command_starts_from_the_name_before(own, given, name):
    changed = override(own, given)
    assert changed.name == name and f"hfc run {own.name} " in command(changed)
    assert changed.base == (None if name == own.name else own.name)
    twice = override(changed, {"num_steps": "4"})
    assert "-t4-" in twice.name and twice.base == own.name
    assert Recipe.from_dict(json.loads(json.dumps(twice.as_dict()))) == twice
