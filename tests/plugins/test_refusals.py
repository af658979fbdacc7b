"""What a plugin cannot do is refused by name before the first batch: nothing is trained."""

import re

import pytest
import torch
from avalanche.benchmarks import benchmark_from_datasets, nc_benchmark
from avalanche.models import SCRModel
from avalanche.training.plugins import AGEMPlugin, GSS_greedyPlugin, ReplayPlugin
from avalanche.training.supervised import (
    DER,
    ER_ACE,
    ER_AML,
    MER,
    SCR,
    GDumb,
    ICaRL,
    JointTraining,
    Naive,
)
from plugin_hosts import (
    ACE,
    CE,
    HOSTS,
    ORDER,
    Watch,
    common,
    digit_data,
    digit_tensors,
    network,
    of_kind,
    same,
    train,
    weights,
)
from torch import nn

from avalanche_hfc.plugins import GFCPlugin, GRDPlugin, HerdingReplayPlugin
from avalanche_hfc.plugins.features import feature_function

BOTH = pytest.mark.parametrize("plugin", [GFCPlugin, GRDPlugin])


def assert_refused(strategy, experience, *words):
    """A ValueError with these words, no loss formed, no weight moved: the head may have grown, that
    is all.
    """
    watch = Watch("before_backward", lambda strategy: strategy.mb_y)
    strategy.plugins.insert(0, watch)
    before = [parameter.clone() for parameter in strategy.model.parameters()]
    with pytest.raises(ValueError, match=".*".join(re.escape(word) for word in words)):
        strategy.train(experience)
    after = list(strategy.model.parameters())
    assert not watch.seen and all(
        torch.equal(new[: len(old)], old) for new, old in zip(after, before, strict=True)
    )


def scr(plugins):
    torch.manual_seed(0)
    model = SCRModel(
        feature_extractor=nn.Sequential(nn.Linear(64, 32), nn.ReLU()), projection=nn.Linear(32, 8)
    )
    return SCR(model=model, **common(model, plugins, 1))


def mer(plugins):
    model = network("fixed")
    return MER(model=model, **common(model, plugins, 1))


def er_aml(plugins):
    model = network("fixed")
    return ER_AML(model=model, feature_extractor=model[0], **common(model, plugins, 1))


@BOTH
@pytest.mark.parametrize(("host", "build"), [("SCR", scr), ("MER", mer), ("ER_AML", er_aml)])
def test_a_loss_is_refused_in_a_host_whose_loss_it_cannot_reach(plugin, host, build, benchmark):
    assert_refused(
        build([plugin()]),
        benchmark.train_stream[0],
        f"{plugin.__name__} cannot act in {host}",
        "Naive, Replay, LwF",
    )


@pytest.mark.parametrize(
    "criterion",
    [
        nn.CrossEntropyLoss(label_smoothing=0.1),
        nn.CrossEntropyLoss(weight=torch.ones(10)),
        nn.CrossEntropyLoss(reduction="sum"),
        nn.CrossEntropyLoss(ignore_index=3),
        nn.MultiMarginLoss(),
    ],
    ids=["smoothing", "class-weights", "sum", "ignored-class", "another"],
)
@BOTH
@pytest.mark.parametrize("name", ["naive", "bic", "ours", "der", "er_ace"])
def test_a_criterion_that_is_no_plain_cross_entropy_is_refused(name, plugin, criterion, benchmark):
    strategy = HOSTS[name]([plugin()], criterion=criterion)
    found = (
        f"{plugin.__name__} cannot act in {type(strategy).__name__}",
        "its criterion is",
        type(criterion).__name__,
    )
    assert_refused(strategy, benchmark.train_stream[0], *found)


def test_cross_entropy_as_a_function_is_as_good_as_the_module(benchmark):
    functional = train(
        HOSTS["naive"]([GFCPlugin()], epochs=1, criterion=nn.functional.cross_entropy),
        benchmark.train_stream[:2],
    )
    module = train(HOSTS["naive"]([GFCPlugin()], epochs=1), benchmark.train_stream[:2])
    assert same(weights(functional.model), weights(module.model))


def test_icarl_with_another_criterion_than_its_own_is_refused(benchmark):
    strategy = HOSTS["icarl"]([GFCPlugin()])
    strategy._criterion = nn.CrossEntropyLoss()
    assert_refused(
        strategy,
        benchmark.train_stream[0],
        "GFCPlugin cannot act in RepairedICaRL",
        "ICaRLLossPlugin is needed",
    )


@BOTH
def test_two_plugins_of_a_kind_are_refused(plugin, benchmark):
    assert_refused(
        HOSTS["naive"]([plugin(), plugin()]),
        benchmark.train_stream[0],
        f"Naive has two {plugin.__name__}s",
    )


@BOTH
@pytest.mark.parametrize(
    "weight", [0, 0.0, -1, float("nan"), float("inf"), True, "balancd", None], ids=str
)
def test_a_weight_that_is_no_number_above_zero_is_refused(plugin, weight, annotations_unchecked):
    with pytest.raises(
        ValueError,
        match=f"{plugin.__name__}: weight must be a number above 0 or 'balanced', got {weight!r}",
    ):
        plugin(weight=weight)


def test_an_unknown_average_is_refused(annotations_unchecked):
    with pytest.raises(ValueError, match="average must be 'present' or 'seen', got 'mean'"):
        GRDPlugin(average="mean")


@BOTH
def test_a_class_that_comes_again_is_refused(plugin, benchmark):
    strategy = train(HOSTS["naive"]([plugin()], epochs=1), benchmark.train_stream[:2])
    assert_refused(
        strategy,
        benchmark.train_stream[0],
        "Classes [0, 3, 7, 9] were learned in step 0 and come again in step 2",
    )


def test_herding_replay_refuses_a_class_that_comes_again(benchmark):
    strategy = train(
        HOSTS["naive"]([HerdingReplayPlugin(mem_size=20)], epochs=1), benchmark.train_stream[:1]
    )
    assert_refused(
        strategy, benchmark.train_stream[0], "Classes [0, 3, 7, 9] were learned in step 0"
    )


@pytest.mark.parametrize(
    "plugin",
    [GFCPlugin, GRDPlugin, lambda: HerdingReplayPlugin(mem_size=20)],
    ids=["gfc", "grd", "herding"],
)
def test_an_experience_without_a_class_timeline_is_refused(plugin):
    data = digit_data(*digit_tensors())
    benchmark = benchmark_from_datasets(train=[data], test=[data])
    strategy = HOSTS["naive"]([plugin()], model=network("fixed"))
    assert_refused(
        strategy,
        benchmark.train_stream[0],
        "no classes_in_this_experience",
        "with_classes_timeline",
    )


@BOTH
@pytest.mark.parametrize("name", ["naive", "replay", "der"])
def test_a_class_outside_a_fixed_head_is_refused_before_the_first_update(name, plugin, benchmark):
    torch.manual_seed(0)
    strategy = HOSTS[name]([plugin()], model=nn.Sequential(nn.Linear(64, 32), nn.Linear(32, 9)))
    found = "Class 9 is outside the head: the model gives 9 columns, for class ids 0 to 8"
    assert_refused(strategy, benchmark.train_stream[0], found)


@pytest.mark.parametrize("name", ["naive", "replay"])
@pytest.mark.parametrize("plugin", [GFCPlugin, GRDPlugin])
def test_a_loss_that_joins_after_the_first_step_is_refused(name, plugin, benchmark):
    strategy = train(HOSTS[name]([], epochs=1), benchmark.train_stream[:1])
    strategy.plugins.insert(0, plugin())
    assert_refused(
        strategy,
        benchmark.train_stream[1],
        "classes of steps [0] are not known",
        "from the first step on",
    )


def test_herding_replay_that_joins_after_the_first_step_is_refused(benchmark):
    strategy = train(HOSTS["naive"]([], epochs=1), benchmark.train_stream[:1])
    strategy.plugins.insert(0, HerdingReplayPlugin(mem_size=20))
    assert_refused(strategy, benchmark.train_stream[1], "classes of steps [0] are not known")


def test_grd_that_joins_where_the_steps_are_known_misses_its_teacher(benchmark):
    strategy = train(HOSTS["ours"]([GFCPlugin()], epochs=1), benchmark.train_stream[:1])
    strategy.plugins.insert(0, GRDPlugin())
    assert_refused(strategy, benchmark.train_stream[1], "GRDPlugin has no teacher")


def icarl_shipped(plugins):
    model = network("fixed")
    extras = {"memory_size": 40, "buffer_transform": None, "fixed_memory": True}
    return ICaRL(
        feature_extractor=model[0], classifier=model[1], **extras, **common(model, plugins, 1)
    )


OWN_MEMORY = {
    "Replay": HOSTS["replay"],
    "Cumulative": HOSTS["cumulative"],
    "RepairedBiC": HOSTS["bic"],
    "RepairedICaRL": HOSTS["icarl"],
    "ICaRL": icarl_shipped,
    "RepairedDER": HOSTS["der"],
    "DER": of_kind(DER, "fixed"),
    "ER_ACE": of_kind(ER_ACE, **ACE),
    "GDumb": of_kind(GDumb, **CE, mem_size=40),
    "JointTraining": of_kind(JointTraining, **CE),
    "SCR": scr,
    "MER": mer,
}


@pytest.mark.parametrize("host", OWN_MEMORY)
def test_herding_replay_is_refused_in_a_host_that_has_its_own_data(host, benchmark):
    strategy = OWN_MEMORY[host]([HerdingReplayPlugin(mem_size=20)])
    data = benchmark.train_stream if host == "JointTraining" else benchmark.train_stream[0]
    assert_refused(strategy, data, f"HerdingReplayPlugin cannot act in {host}", "Naive, LwF, EWC")


@pytest.mark.parametrize(
    "second",
    [
        ReplayPlugin(mem_size=20),
        AGEMPlugin(patterns_per_experience=5, sample_size=5),
        GSS_greedyPlugin(mem_size=20, input_size=[64]),
        HerdingReplayPlugin(per_class=2),
    ],
    ids=lambda plugin: type(plugin).__name__,
)
def test_herding_replay_is_refused_beside_a_second_memory(second, benchmark):
    strategy = HOSTS["naive"]([HerdingReplayPlugin(mem_size=20), second])
    assert_refused(
        strategy,
        benchmark.train_stream[0],
        "Naive has two memories: HerdingReplayPlugin and",
        type(second).__name__,
    )


def test_a_memory_smaller_than_the_classes_of_the_whole_benchmark_is_refused_in_the_first_step(
    benchmark,
):
    strategy = HOSTS["naive"]([HerdingReplayPlugin(mem_size=9)])
    assert_refused(
        strategy, benchmark.train_stream[0], "A memory of 9 exemplars is too small for 10 classes"
    )
    train(HOSTS["naive"]([HerdingReplayPlugin(mem_size=10)], epochs=1), benchmark.train_stream)


def test_only_the_classes_in_the_benchmark_count():
    x, y = digit_tensors()
    data = digit_data(x[y < 6], y[y < 6])
    benchmark = nc_benchmark(
        data,
        data,
        n_experiences=3,
        task_labels=False,
        fixed_class_order=[c for c in ORDER if c < 6],
    )
    strategy = HOSTS["naive"]([HerdingReplayPlugin(mem_size=5)])
    assert_refused(
        strategy, benchmark.train_stream[0], "A memory of 5 exemplars is too small for 6 classes"
    )


def test_a_model_that_gives_no_features_is_refused_by_herding_replay(benchmark):
    model = nn.Sequential(nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 10, 8), nn.Flatten())
    strategy = HOSTS["naive"]([HerdingReplayPlugin(mem_size=20)], model=model)
    assert_refused(
        strategy, benchmark.train_stream[0], "Sequential gives no features", "nor a linear layer"
    )
    with pytest.raises(ValueError, match="Conv2d gives no features"):
        feature_function(nn.Conv2d(1, 1, 1))


def test_a_plugin_does_not_refuse_its_host_for_a_plugin_of_another_kind(benchmark):
    plugins = [GFCPlugin(), GRDPlugin(), HerdingReplayPlugin(mem_size=20)]
    strategy = train(of_kind(Naive, **CE)(plugins, epochs=1), benchmark.train_stream)
    assert [len(plugin.loss_terms) for plugin in plugins[:2]] == [1, 1] and len(
        plugins[2].memory
    ) == 20
    assert strategy.step_table.num_seen == 10
