"""From recipes to what trains: every recipe of every scale, the optimizer's groups, the schedule,
the data.
"""

import copy
import math
from functools import cache

import numpy as np
import pytest
import torch
from avalanche.training.plugins import SupervisedPlugin

from avalanche_hfc.benchmarks import class_order
from avalanche_hfc.lab import Recipe, all_names, override, recipe
from avalanche_hfc.lab.build import (
    SchedulePlugin,
    build,
    build_model,
    build_optimizer,
    build_strategy,
)
from avalanche_hfc.lab.data import build_benchmark, plan_of
from avalanche_hfc.models import DyToxModel, ResNet18, ResNet32, TSAViT, ViT
from avalanche_hfc.strategies import STRATEGIES

NAMES = all_names()
ATTRIBUTES = {
    "losses": "hfc_losses",
    "relation": "relation_form",
    "lr": "bias_lr",
}  # where a strategy keeps an option under another name
DEMO = recipe("digits-b0-t5-hfc@demo")
KINDS = {
    "tsavit": TSAViT,
    "vit": ViT,
    "dytox": DyToxModel,
    "convit": DyToxModel,
    "resnet32": ResNet32,
    "resnet18": ResNet18,
}
CLASSES = {"cifar100": 100, "imagenet100": 100, "imagenet1000": 1000, "digits": 10}
ORDERS = {
    "cifar100": "cifar100-a",
    "imagenet100": "imagenet100",
    "imagenet1000": "imagenet1000",
    "digits": None,
}


@pytest.fixture(autouse=True)
def nothing_is_fetched(monkeypatch):
    def refused(*args, **kwargs):
        raise AssertionError("a download")

    monkeypatch.setattr("timm.models._builder.load_pretrained", refused)
    monkeypatch.setattr("avalanche_hfc.models.backbone.weights_file", refused)


@cache
def meta_model(model, image_size):
    own = next(
        recipe(name)
        for name in NAMES
        if (recipe(name).model, recipe(name).data.image_size) == (model, image_size)
    )
    return build_model(own, device="meta")


# Every recipe


def test_every_recipe_builds_its_model_and_strategy():
    built = set()
    for name in NAMES:
        own = recipe(name)
        configuration = (own.model, own.data.image_size, own.train, own.memory, own.method)
        if configuration in built:
            continue
        built.add(configuration)
        strategy = build_strategy(own, copy.deepcopy(meta_model(own.model, own.data.image_size)))
        assert type(strategy) is STRATEGIES[own.method.name], name
        assert strategy.train_mb_size == own.train.batch_size and isinstance(
            strategy.plugins[0], SchedulePlugin
        )
        for option, value in own.method.options:
            held = vars(strategy).get(ATTRIBUTES.get(option, option))
            assert held in (None, value) or value is None, (name, option)
    assert len(built) > 200


def test_every_recipe_has_the_model_it_names_with_the_size_of_its_images():
    kinds = {(recipe(name).model, recipe(name).data.image_size) for name in NAMES}
    for model, image_size in kinds:
        built = meta_model(model, image_size)
        assert type(built) is KINDS[model.kind]
        encoder = getattr(built, "encoder", built)
        patches = getattr(getattr(encoder, "backbone", encoder), "patch_embed", None)
        if patches is not None:
            assert tuple(patches.img_size) == (image_size, image_size)
            if dict(model.options)["patch_size"]:
                assert patches.patch_size[0] == dict(model.options)["patch_size"]


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("cifar100-b0-t10-hfc@paper", 85_797_120),  # 11 blocks, TSA and its token
        ("cifar100-b0-t10-hfc-official@paper", 86_887_616),  # with adapters
        ("cifar100-b0-t10-icarl@paper", 85_798_656),  # ViT-Base
    ],
)
def test_the_models_of_the_paper_have_their_number_of_parameters(name, parameters):
    model = build_model(recipe(name), device="meta")
    assert (
        sum(
            parameter.numel()
            for key, parameter in model.named_parameters()
            if not key.startswith("head.")
        )
        == parameters
    )


def test_the_steps_and_class_orders_of_every_recipe_can_be_dealt_out():
    recipes = {recipe(name).data: recipe(name) for name in NAMES}
    for data, own in recipes.items():
        order, classes = ORDERS[data.dataset], data.num_classes or CLASSES[data.dataset]
        plan = plan_of(own, 3)
        sizes = plan.classes_per_step(classes)
        assert len(sizes) == data.total_steps and sum(sizes) == classes
        assert sizes[0] == (classes // 2 if data.base_fraction else classes // data.num_steps)
        if order is not None and data.num_classes is None:
            assert plan.order(classes) == list(class_order(order))


@pytest.mark.parametrize(("base", "sizes"), [("b0", [2] * 5), ("b50", [5] + [1] * 5)])
def test_the_benchmark_of_the_demonstration_is_as_named_and_its_order_is_drawn_by_the_seed(
    base, sizes
):
    own = recipe(f"digits-{base}-t5-hfc@demo")
    orders = []
    for seed in (0, 0, 1):
        benchmark = build_benchmark(own, seed)
        assert [
            len(experience.classes_in_this_experience) for experience in benchmark.train_stream
        ] == sizes
        orders.append(benchmark.classes_order)
    assert orders[0] == orders[1] != orders[2]
    assert benchmark.image_shape == (1, 8, 8)


# Weights and seeds


def test_a_seed_fixes_the_weights_whatever_was_drawn_before():
    first = build(DEMO, 5).strategy.model.state_dict()
    torch.rand(3), np.random.rand(3)
    again, other = (build(DEMO, seed).strategy.model.state_dict() for seed in (5, 6))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["shared_embedding"], other["shared_embedding"])


@pytest.mark.parametrize(
    "backbone", ["vit_base_patch16_224", "vit_base_patch16_224.augreg_in21k_ft_in1k"]
)
@pytest.mark.parametrize("row", ["hfc", "podnet", "dytox"])
def test_a_recipe_of_the_paper_refuses_weights_that_are_not_mae(row, backbone):
    own = override(recipe(f"cifar100-b0-t10-{row}@paper"), {"backbone": backbone})
    with pytest.raises(
        ValueError, match=r"the paper's ViT starts from MAE; .* have the tag 'augreg"
    ):
        build_model(own, device="meta")
    assert build_model(override(own, {"weights": "none"}), device="meta")


def test_the_weights_of_a_recipe_of_the_paper_are_asked_for_and_only_off_the_meta_device(
    monkeypatch,
):
    asked = []
    monkeypatch.setattr(
        "timm.models._builder.load_pretrained",
        lambda model, **kwargs: asked.append(
            (kwargs["pretrained_cfg"]["tag"], kwargs["pretrained_cfg"]["file"])
        ),
    )
    monkeypatch.setattr(
        "avalanche_hfc.models.backbone.weights_file", lambda name: f"{name}.safetensors"
    )
    own = override(recipe("cifar100-b0-t10-hfc@paper"), {"embed_dim": "24"})
    build_model(own, device="meta")
    assert asked == []
    model = build_model(own)
    assert (
        asked == [("mae", "vit_base_patch16_224.mae.safetensors")] and model.pretrained_tag == "mae"
    )


# Optimizer and schedule


@pytest.mark.parametrize(
    ("name", "of_head"),
    [
        ("cifar100-b0-t10-hfc@paper", {"head", "tsa", "shared_embedding"}),
        ("cifar100-b0-t10-icarl@paper", {"head"}),
        ("cifar100-b0-t10-dytox@paper", {"head"}),
    ],
)
def test_head_and_tsa_train_at_five_times_the_rate_and_every_parameter_once(name, of_head):
    own = recipe(name)
    model = meta_model(own.model, own.data.image_size)
    backbone, head = build_optimizer(own.train, model).param_groups
    names = {id(parameter): key for key, parameter in model.named_parameters()}
    assert {names[id(parameter)].split(".")[0] for parameter in head["params"]} == of_head
    assert not {names[id(parameter)].split(".")[0] for parameter in backbone["params"]} & of_head
    assert len(backbone["params"]) + len(head["params"]) == len(names)
    assert (backbone["lr"], head["lr"], head["weight_decay"], backbone["weight_decay"]) == (
        6.25e-5,
        3.125e-4,
        1e-5,
        1e-5,
    )


class Rates(SupervisedPlugin):
    """What the optimizer has in every epoch: (step, epoch, rates of the groups, weight decay)."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def before_training_iteration(self, strategy, **kwargs):
        groups, clock = strategy.optimizer.param_groups, strategy.clock
        row = (
            clock.train_exp_counter,
            clock.train_exp_epochs,
            [group["lr"] for group in groups],
            groups[0]["weight_decay"],
        )
        self.seen += [row] if self.seen[-1:] != [row] else []


@pytest.mark.parametrize("row", ["hfc", "podnet", "dytox", "avalanche-replay"])
def test_every_step_has_the_same_rates_the_first_its_own_epochs_and_the_decay_its_rule(row):
    given = {
        "epochs": "2",
        "first_epochs": "3",
        "schedule": "cosine",
        "lowest_lr": "1e-4",
        "warm_up_epochs": "1",
        "head_lr_factor": "5",
    }
    given |= {"decay_by_step": "true", "weight_decay": "0.1", "batch_size": "256"}
    own = override(recipe(f"digits-b0-t5-{row}@demo"), given)
    rates = Rates()
    built = build(own, 0, plugins=(rates,))
    for experience in built.benchmark.train_stream[:3]:
        built.strategy.train(experience)
    lr = own.train.lr
    cosine = lambda epoch, of: 1e-4 + (lr - 1e-4) * (1 + math.cos(math.pi * epoch / of)) / 2  # noqa: E731
    steps = [[lr / 2, cosine(1, 3), cosine(2, 3)], [lr / 2, cosine(1, 2)], [lr / 2, cosine(1, 2)]]
    wanted = [
        (step, epoch, rate)
        for step, own_rates in enumerate(steps)
        for epoch, rate in enumerate(own_rates)
    ]
    assert [entry[:2] for entry in rates.seen] == [entry[:2] for entry in wanted]
    for (step, _, groups, decay), (_, _, rate) in zip(rates.seen, wanted, strict=True):
        assert groups == pytest.approx([rate, 5 * rate], rel=1e-12)
        assert decay == pytest.approx(0.1 * 5 / (step + 1))


# Data


def pictures(num_classes=100, num_images=3):
    return np.random.RandomState(0).randint(
        0, 256, (num_classes, num_images, 32, 32, 3), dtype=np.uint8
    )


def npz_file(path, pixels, *, order=None):
    """The last image of each class is a test image; `order` mixes the training images."""
    labels, num_train = np.arange(len(pixels)), pixels.shape[1] - 1
    train, targets = pixels[:, :-1].reshape(-1, 32, 32, 3), labels.repeat(num_train)
    order = np.arange(len(targets)) if order is None else order
    np.savez(
        path,
        x_train=train[order],
        y_train=targets[order],
        x_test=pixels[:, -1],
        y_test=labels,
        class_names=np.array([f"class {number}" for number in labels]),
    )


SMALL = override(
    recipe("cifar100-b50-t5-hfc@small"),
    {"train_per_class": "2", "test_per_class": "1", "num_classes": "none"},
)


def test_cifar_may_be_an_npz_file(tmp_path):
    pixels = pictures()
    npz_file(tmp_path / "plain.npz", pixels)
    benchmark = build_benchmark(SMALL, 0, str(tmp_path / "plain.npz"))
    assert (
        benchmark.classes_order == list(class_order("cifar100-a"))
        and len(benchmark.train_stream) == 6
    )
    assert benchmark.class_names[7] == "class 7" and benchmark.image_shape == (3, 32, 32)
    last = benchmark.train_stream[5]
    assert len(last.dataset) == 20 and len(benchmark.test_stream[5].dataset) == 10
    for image, label, _ in (last.dataset[0], last.dataset[19]):
        expected = torch.from_numpy(pixels[label, :2]).permute(0, 3, 1, 2) / 127.5 - 1
        assert any(torch.allclose(image, one, atol=1e-6) for one in expected)


def test_the_first_images_of_each_class_are_the_same_from_a_longer_file_in_another_order(tmp_path):
    pixels = pictures(num_images=5)
    mixed = np.argsort(
        np.tile(np.arange(4), 100), kind="stable"
    )  # class after class becomes image after image
    npz_file(tmp_path / "whole.npz", pixels, order=mixed)
    npz_file(tmp_path / "half.npz", pixels[:, [0, 1, 4]])
    first, second = (
        build_benchmark(SMALL, 0, tmp_path / name).train_stream
        for name in ("whole.npz", "half.npz")
    )
    for one, other in zip(first, second, strict=True):
        assert list(one.dataset.targets) == list(other.dataset.targets)
        assert all(
            torch.equal(one.dataset[place][0], other.dataset[place][0])
            for place in range(len(one.dataset))
        )


def classes_and_images(benchmark, pixels):
    """(class, number of the image in the class) of each image of both streams, by step."""
    whole = torch.from_numpy(pixels).permute(0, 1, 4, 2, 3) / 127.5 - 1  # class, image, c, h, w
    for stream in (benchmark.train_stream, benchmark.test_stream):
        yield [
            [
                tuple(((whole - image).abs().amax((2, 3, 4)) < 1e-5).nonzero()[0].tolist())
                for image, _, _ in experience.dataset
            ]
            for experience in stream
        ]


def test_the_first_classes_of_the_paper_s_order_arrive_in_it_and_their_last_images_are_held_out(
    tmp_path,
):
    pixels = pictures(num_images=6)  # five for training, one for the test
    npz_file(tmp_path / "plain.npz", pixels)
    given = {"num_classes": "20", "train_per_class": "4", "hold_out": "1"}
    own = override(recipe("cifar100-b0-t5-hfc@small"), given)
    assert own.data.test_per_class is None
    benchmark = build_benchmark(own, 0, tmp_path / "plain.npz")
    train, test = classes_and_images(benchmark, pixels)
    order = class_order("cifar100-a")
    for step in range(5):
        arriving = set(order[4 * step : 4 * step + 4])
        assert set(train[step]) == {(k, image) for k in arriving for image in (0, 1, 2)}
        assert set(test[step]) == {(k, 3) for k in arriving}
    assert benchmark.class_names == tuple(f"class {k}" for k in order[:20])
    assert benchmark.classes_order == list(range(20))


def test_an_order_by_the_seed_has_the_same_classes_and_a_named_one_its_own(tmp_path):
    pixels = pictures(num_images=3)
    npz_file(tmp_path / "plain.npz", pixels)
    first = [
        {k for k, _ in classes_and_images_of_first(tmp_path, pixels, given, seed)}
        for given, seed in (("paper", 0), ("seed", 0), ("seed", 1), ("cifar100-b", 0))
    ]
    paper, other = (set(class_order(name)[:4]) for name in ("cifar100-a", "cifar100-b"))
    assert first[0] == paper and first[3] == other and first[1] != first[2]
    assert first[1] | first[2] <= set(class_order("cifar100-a")[:20])


def classes_and_images_of_first(folder, pixels, given, seed):
    own = override(
        recipe("cifar100-b0-t5-hfc@small"),
        {"class_order": given, "train_per_class": "2", "test_per_class": "1"},
    )
    train, _ = classes_and_images(build_benchmark(own, seed, folder / "plain.npz"), pixels)
    return train[0]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"num_classes": "120"}, "data.num_classes must be at most 100, .* got 120"),
        ({"num_classes": "18"}, "18 classes cannot be split over 5 steps"),
        ({"num_classes": "0"}, "data.num_classes must be a number above 0, got 0"),
        ({"hold_out": "250"}, r"data.hold_out must be below data.train_per_class \(250\), got 250"),
        ({"hold_out": "5", "test_per_class": "3"}, "data.test_per_class must be none, got 3"),
        (
            {"train_per_class": "none", "hold_out": "2"},
            "2 training images of each class are to be held out .*; class 0 has 2",
        ),
    ],
)
def test_classes_and_images_that_are_not_there_are_refused(tmp_path, given, said):
    npz_file(tmp_path / "plain.npz", pictures())
    with pytest.raises(ValueError, match=said):
        own = override(recipe("cifar100-b0-t5-hfc@small"), given)
        build_benchmark(own, 0, tmp_path / "plain.npz")


def test_more_images_than_a_class_has_are_refused(tmp_path):
    npz_file(tmp_path / "plain.npz", pictures())
    with pytest.raises(
        ValueError, match="3 training images of each class are asked for; class 0 has 2"
    ):
        build_benchmark(override(SMALL, {"train_per_class": "3"}), 0, tmp_path / "plain.npz")


def test_a_part_of_cifar_is_refused_at_scale_paper_unless_it_is_asked_for(tmp_path):
    npz_file(tmp_path / "plain.npz", pictures())
    own = recipe("cifar100-b0-t5-icarl-resnet32@paper")
    said = "has 500 training images of each class, .* with 2. .*--data.train-per-class"
    with pytest.raises(ValueError, match=said):
        build_benchmark(own, 0, tmp_path / "plain.npz")
    asked = override(own, {"data.train-per-class": "2"})
    assert len(build_benchmark(asked, 0, tmp_path / "plain.npz").train_stream[0].dataset) == 40


def test_a_damaged_or_foreign_file_is_named(tmp_path):
    (tmp_path / "text.npz").write_text("no images")
    npz_file(tmp_path / "few.npz", pictures(num_classes=3))
    for name, said in (("text.npz", "text.npz: not an npz file"), ("few.npz", "once")):
        with pytest.raises(ValueError, match=said):
            build_benchmark(SMALL, 0, tmp_path / name)
    with pytest.raises(FileNotFoundError, match="No file .*none.npz"):
        build_benchmark(SMALL, 0, tmp_path / "none.npz")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "cifar100-b0-t10-hfc@paper",
            "CIFAR-100 is not on disk: looked for .*cifar-100-python.*download=True.*Or name "
            "an npz file",
        ),
        (
            "cifar100-b0-t10-hfc@small",
            "CIFAR-100 is not on disk: looked for .*cifar-100-python.*Or name an npz file",
        ),
        (
            "imagenet100-b0-t10-hfc@paper",
            "ImageNet is not on disk: looked for .*image-net.org.*Name the folder",
        ),
        ("imagenet1000-b0-t10-podnet@paper", "ImageNet is not on disk"),
    ],
)
def test_missing_data_is_told_with_where_it_was_looked_for_and_how_to_get_it(tmp_path, name, said):
    with pytest.raises(FileNotFoundError, match=said) as error:
        build(recipe(name), 0, data_root=tmp_path)
    assert str(tmp_path) in str(error.value)


def test_a_recipe_read_back_builds_the_same():
    again = Recipe.from_dict(DEMO.as_dict())
    first, second = (build(own, 2).strategy.model.state_dict() for own in (DEMO, again))
    assert all(torch.equal(first[name], second[name]) for name in first)
