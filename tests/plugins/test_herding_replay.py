"""Herding replay: which images are kept, how they come back, and what the herding pass leaves
behind: nothing.
"""

import random

import numpy as np
import pytest
import torch
from avalanche.benchmarks import class_incremental_benchmark, nc_benchmark
from hypothesis import given
from hypothesis import strategies as st
from plugin_hosts import (
    CLASSES,
    HOSTS,
    ORDER,
    SIZES,
    Watch,
    digit_data,
    digit_tensors,
    digits_benchmark,
    network,
    same,
    snapshot,
    train,
    weights,
)
from torch import nn

from avalanche_hfc.benchmarks.positions import flatten
from avalanche_hfc.memory import herding_order
from avalanche_hfc.plugins import HerdingReplayPlugin, features
from avalanche_hfc.plugins.features import feature_function, features_of
from avalanche_hfc.plugins.herding import indices_by_class

HERDED = ["naive", "naive-growing", "lwf", "ewc", "ours"]
BUDGETS = pytest.mark.parametrize(
    ("budget", "limits"),
    [({"mem_size": 22}, (5, 3, 2)), ({"per_class": 3}, (3, 3, 3))],
    ids=["total", "per-class"],
)


def negative(x):
    """The training transform: unmistakable, and of other features."""
    return 1 - x


def squared(x):
    """The eval transform."""
    return x**2


def transformed_benchmark():
    return digits_benchmark(train_transform=negative, eval_transform=squared)


def trained(name, benchmark, *plugins, **options):
    """The strategy and the model as it was after each step."""
    ends = Watch("after_training_exp", lambda strategy: snapshot(strategy.model))
    strategy = train(HOSTS[name]([*plugins, ends], epochs=1, **options), benchmark.train_stream)
    return strategy, ends.seen


def expected_positions(benchmark, models, limit, upto=3):
    """class id -> positions in training order, from the images themselves."""
    x, y = digit_tensors()
    result, offset = {}, 0
    for step, class_ids in list(enumerate(CLASSES))[:upto]:
        rows = torch.as_tensor(benchmark.train_exps_patterns_assignment[step])
        for class_id in class_ids:
            own = (y[rows] == class_id).nonzero()[:, 0]
            with torch.no_grad():
                embedding = models[step][0](x[rows[own]] ** 2)
            unit = embedding / embedding.norm(dim=1, keepdim=True)
            result[class_id] = (own[herding_order(unit, limit)] + offset).tolist()
        offset += len(rows)
    return result


@BUDGETS
@pytest.mark.parametrize("name", HERDED)
def test_the_exemplars_are_the_herding_order_of_unit_features_under_the_eval_transform(
    name, budget, limits
):
    benchmark, herding = transformed_benchmark(), HerdingReplayPlugin(**budget)
    kept = Watch(
        "after_training_exp",
        lambda strategy: {c: p.tolist() for c, p in herding.positions_of_class().items()},
    )
    _, models = trained(name, benchmark, herding, kept)
    for step, limit in enumerate(limits):
        assert kept.seen[step] == expected_positions(benchmark, models, limit, upto=step + 1)
        assert sum(len(positions) for positions in kept.seen[step].values()) == limit * sum(
            SIZES[: step + 1]
        )


def test_another_rule_gives_its_own_order():
    herding = HerdingReplayPlugin(per_class=3, rule="first")
    trained("naive", transformed_benchmark(), herding)
    targets = [torch.as_tensor(list(source.targets)) for source in herding.sources]
    first = (targets[0] == 9).nonzero()[:3, 0]
    assert herding.positions_of_class()[9].tolist() == first.tolist()


@pytest.mark.parametrize("name", HERDED)
def test_a_step_trains_on_its_own_images_and_the_exemplars_all_under_the_training_transform(name):
    benchmark, herding = transformed_benchmark(), HerdingReplayPlugin(mem_size=22)
    sizes = Watch(
        "before_training_exp", lambda strategy: (len(strategy.adapted_dataset), len(herding.memory))
    )
    batches = Watch("before_backward", lambda strategy: (strategy.mb_x, strategy.mb_y), step=2)
    kept = Watch("after_training_exp", lambda strategy: herding.memory.positions())
    trained(name, benchmark, herding, sizes, batches, kept)
    assert sizes.seen == [(48, 0), (36 + 20, 20), (36 + 21, 21)]
    x, y = digit_tensors()
    in_order = torch.cat(
        [torch.as_tensor(rows) for rows in benchmark.train_exps_patterns_assignment]
    )  # position -> row of the raw data
    rows = torch.cat([in_order[84:], in_order[kept.seen[1]]])
    expected = sorted(
        [*negative(image).tolist(), label]
        for image, label in zip(x[rows], y[rows].tolist(), strict=True)
    )
    images, labels = (torch.cat(parts) for parts in zip(*batches.seen, strict=True))
    assert (
        sorted(
            [*image.tolist(), label] for image, label in zip(images, labels.tolist(), strict=True)
        )
        == expected
    )


def test_positions_lead_back_to_the_right_images_and_labels():
    benchmark, herding = transformed_benchmark(), HerdingReplayPlugin(mem_size=30)
    trained("ours", benchmark, herding)
    x, y = digit_tensors()
    in_order = torch.cat(
        [torch.as_tensor(rows) for rows in benchmark.train_exps_patterns_assignment]
    )
    assert sorted(herding.positions_of_class()) == list(range(10))
    for class_id, positions in herding.positions_of_class().items():
        assert (y[in_order[positions]] == class_id).all() and len(set(positions.tolist())) == 3
    replayed = [(sample[0], sample[1]) for part in herding.exemplars() for sample in part]
    rows = in_order[herding.memory.positions()]
    assert len(replayed) == 30
    for (image, label), row in zip(replayed, rows, strict=True):
        assert torch.equal(image, negative(x[row])) and label == y[row]


@pytest.mark.parametrize("name", ["naive", "ours"])
def test_batches_without_task_labels_are_replayed_too(name):
    data = digit_data(*digit_tensors())
    benchmark = class_incremental_benchmark(
        {"train": data, "test": data}, class_order=ORDER, num_classes_per_exp=SIZES
    )
    herding = HerdingReplayPlugin(mem_size=22)
    batches = Watch(
        "before_backward", lambda strategy: (len(strategy.mbatch), strategy.mb_y), step=2
    )
    _, models = trained(name, benchmark, herding, batches)
    assert {width for width, _ in batches.seen} == {2}
    counts = torch.cat([labels for _, labels in batches.seen]).bincount(minlength=10).tolist()
    assert counts == [12 if c in CLASSES[2] else 3 for c in range(10)]
    for step, (class_ids, model) in enumerate(zip(CLASSES, models, strict=True)):
        source = herding.sources[step]
        images, labels = (
            torch.stack([sample[0] for sample in source]),
            torch.tensor([sample[1] for sample in source]),
        )
        for class_id in class_ids:
            own = (labels == class_id).nonzero()[:, 0]
            order = herding_order(model[0](images[own]).detach(), 2)
            start = sum(len(other) for other in herding.sources[:step])
            assert herding.positions_of_class()[class_id].tolist() == (own[order] + start).tolist()


def depth(node):
    return 1 + max((depth(child) for child in getattr(node, "_datasets", ())), default=0)


def test_nothing_nests_in_twenty_steps():
    torch.manual_seed(3)
    y = torch.arange(20).repeat(5)
    data = digit_data(torch.randn(100, 64), y)
    benchmark = nc_benchmark(
        data,
        data,
        n_experiences=20,
        task_labels=False,
        fixed_class_order=list(range(20)),
        train_transform=negative,
    )
    herding = HerdingReplayPlugin(mem_size=20)

    def structure(strategy):
        dataset = strategy.adapted_dataset
        return (
            len(dataset),
            depth(dataset._flat_data),
            len(flatten(dataset).sources),
            len(herding.memory),
        )

    watch = Watch("before_training_exp", structure)
    model = nn.Sequential(nn.Linear(64, 8), nn.Linear(8, 20))
    train(HOSTS["naive"]([herding, watch], epochs=1, model=model), benchmark.train_stream)
    sizes, depths, sources, kept = zip(*watch.seen, strict=True)
    assert len(set(depths[1:])) == 1 and set(sources) == {1}
    assert sizes == tuple(5 + number for number in kept) and max(kept) <= 20
    assert all(herding.sources[i] is not None and len(herding.sources[i]) == 5 for i in range(20))


def normed_network():
    return network(
        body=nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.5))
    )


def random_states():
    return torch.get_rng_state().tolist(), str(np.random.get_state()), str(random.getstate())


@pytest.mark.parametrize("name", ["naive", "ours"])
def test_the_herding_pass_leaves_modes_weights_statistics_and_random_numbers_as_they_were(
    name, benchmark, annotations_unchecked
):
    def freeze_and_look(strategy):
        strategy.model.train()
        strategy.model[0][1].eval()  # a submodule that the user keeps frozen
        return look(strategy)

    def look(strategy):
        return (
            [module.training for module in strategy.model.modules()],
            weights(strategy.model),
            random_states(),
        )

    before, after = Watch("after_training_exp", freeze_and_look), Watch("after_training_exp", look)
    strategy = HOSTS[name](
        [before, HerdingReplayPlugin(mem_size=20), after], epochs=1, model=normed_network()
    )
    train(strategy, benchmark.train_stream)
    for (modes, values, states), (modes_after, values_after, states_after) in zip(
        before.seen, after.seen, strict=True
    ):
        assert modes == modes_after and modes.count(False) == 1
        assert same(values, values_after)
        assert states == states_after


class Net(nn.Module):
    """The head is registered first and runs last; `embed` is a layer, not a method."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(32, 10)
        self.embed = nn.Linear(64, 32)

    def forward(self, x):
        return self.head(self.embed(x).relu())


class NetOfAvalanche(Net):
    def get_features(self, x):
        return 2 * self.embed(x)


class NetOfOurs(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(64, 32)

    def embed(self, x):
        return 3 * self.body(x)

    def get_features(self, x):
        raise AssertionError("embed comes first")


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (network("incremental"), lambda model, x: model[0](x)),
        (network("fixed"), lambda model, x: model[0](x)),
        (network("growing"), lambda model, x: model[0](x)),
        (Net(), lambda model, x: model.embed(x).relu()),
        (NetOfAvalanche(), lambda model, x: 2 * model.embed(x)),
        (NetOfOurs(), lambda model, x: 3 * model.body(x)),
    ],
    ids=["incremental", "linear", "growing", "head-first", "get_features", "embed"],
)
def test_the_features_are_what_enters_the_classifier(model, expected):
    x, y = digit_tensors()
    if isinstance(model, nn.Sequential) and hasattr(model[1], "grow"):
        model[1].grow(range(10))
    found = features_of(model, digit_data(x, y), batch_size=50, device=torch.device("cpu"))
    torch.testing.assert_close(found, expected(model, x).detach(), rtol=1e-6, atol=1e-6)
    assert not any(module._forward_pre_hooks for module in model.modules())
    assert feature_function(model)(x).shape == (120, 32)


def test_features_do_not_depend_on_the_way_the_images_are_loaded(monkeypatch):
    dataset = transformed_benchmark().train_stream[1].dataset
    model = normed_network().train()
    ways = [
        features_of(model, dataset, batch_size=size, device=torch.device("cpu")) for size in (7, 64)
    ]
    monkeypatch.setattr(features, "flatten", lambda dataset: None)  # Avalanche's own way
    ways.append(features_of(model, dataset, batch_size=7, device=torch.device("cpu")))
    x, _ = digit_tensors()
    rows = torch.as_tensor(transformed_benchmark().train_exps_patterns_assignment[1])
    expected = snapshot(model)[0](x[rows] ** 2).detach()
    for found in ways:
        torch.testing.assert_close(found, expected)


def test_class_means_are_the_unit_means_of_the_exemplars_unit_features_under_the_eval_transform():
    benchmark, plugin = transformed_benchmark(), HerdingReplayPlugin(per_class=3)
    with pytest.raises(ValueError, match="no exemplars yet"):
        plugin.class_means(None)
    strategy, _ = trained("ours", benchmark, plugin)
    images = torch.cat(
        [
            torch.stack([x for x, *_ in experience.dataset.eval()])
            for experience in benchmark.train_stream
        ]
    )
    embed = feature_function(strategy.model)
    means = plugin.class_means(strategy)
    assert list(means) == list(plugin.memory.classes)
    with torch.no_grad():
        for class_id, mean in means.items():
            unit = [
                embed(images[p][None])[0] / embed(images[p][None])[0].norm()
                for p in plugin.memory.of(class_id).tolist()
            ]
            by_hand = sum(unit) / len(unit)
            torch.testing.assert_close(mean, by_hand / by_hand.norm())


@given(st.lists(st.integers(0, 9), max_size=40), st.sets(st.integers(0, 12)))
def test_the_indices_of_each_class_are_those_where_it_stands(targets, wanted):
    found = indices_by_class(torch.tensor(targets, dtype=torch.int64), sorted(wanted))
    assert {class_id: indices.tolist() for class_id, indices in found.items()} == {
        class_id: [place for place, target in enumerate(targets) if target == class_id]
        for class_id in wanted
    }
