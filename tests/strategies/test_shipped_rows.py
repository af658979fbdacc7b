"""Avalanche's own strategies as comparison rows: which of them run with a growing head, what they
learn, what they refuse.
"""

import inspect
import re
from functools import cache
from types import SimpleNamespace

import pytest
import torch
from avalanche.evaluation.metrics import accuracy_metrics
from avalanche.models import IncrementalClassifier
from avalanche.training.plugins import EvaluationPlugin, SupervisedPlugin
from avalanche.training.supervised.joint_training import AlreadyTrainedError
from strategy_runs import At, benchmark_of, mlp, vit
from torch import nn

from avalanche_hfc.strategies import STRATEGIES, shipped

FINETUNING = 1 / 3  # it ends with the two classes of the last of three steps
MEMORY = {
    "replay",
    "der",
    "der-fixed",
    "er_ace",
    "er_ace-fixed",
    "icarl",
    "icarl-fixed",
    "bic",
    "bic-fixed",
}
FAILING = {"avalanche-der": RuntimeError, "avalanche-bic": TypeError}
SHIPPED = {name: kind for name, kind in STRATEGIES.items() if name.startswith("avalanche-")}
RUNNING = [name for name in SHIPPED if name not in FAILING]
ENDS_WELL = [
    name for name in RUNNING if name.removeprefix("avalanche-") in MEMORY | {"cumulative", "joint"}
]


def build(name, model=None, **options):
    kind = SHIPPED[name]
    model = vit() if model is None else model
    small = {"mem_size": 60, "val_percentage": 0.3, "stage_2_epochs": 30}
    defaults = {
        option: value
        for option, value in small.items()
        if option in inspect.signature(kind).parameters
    }
    evaluator = EvaluationPlugin(accuracy_metrics(stream=True), loggers=[])
    defaults |= dict(train_mb_size=20, train_epochs=6, eval_mb_size=60, evaluator=evaluator)
    return kind(
        model=model,
        optimizer=torch.optim.AdamW(model.parameters(), lr=3e-3),
        **(defaults | options),
    )


def accuracy(strategy, stream):
    (value,) = [v for k, v in strategy.eval(stream).items() if k.startswith("Top1_Acc_Stream/eval")]
    return value


@cache
def run(name, **options):
    """Three steps of two digits, or one training on all of them."""
    torch.manual_seed(0)
    benchmark, model, mine = benchmark_of(per_class=60), vit(), SupervisedPlugin()
    given = [mine]
    strategy = build(name, model, plugins=given, **options)
    before = {name: value.detach().clone() for name, value in model.backbone.named_parameters()}
    steps = [benchmark.train_stream] if strategy.trains_on_stream else benchmark.train_stream
    accuracies = []
    for step, part in enumerate(steps):
        strategy.train(part)
        accuracies.append(
            accuracy(
                strategy,
                benchmark.test_stream
                if strategy.trains_on_stream
                else benchmark.test_stream[: step + 1],
            )
        )
    return SimpleNamespace(
        strategy=strategy, model=model, accuracies=accuracies, given=given, mine=mine, before=before
    )


# What runs


def test_the_rows_that_cannot_run_are_der_and_bic_as_shipped():
    assert {name for name, kind in SHIPPED.items() if kind.cannot_run} == FAILING.keys()
    assert len(SHIPPED) == 15 and sum(name.endswith("-fixed") for name in SHIPPED) == 5


@pytest.mark.parametrize("name", FAILING)
def test_a_row_that_cannot_run_raises_in_the_second_step_what_it_says(name):
    strategy, benchmark = build(name, train_epochs=1), benchmark_of(per_class=20)
    strategy.train(benchmark.train_stream[0])
    assert accuracy(strategy, benchmark.test_stream[:1]) > 0
    said = re.search("`(.+)`", SHIPPED[name].cannot_run)[1]
    with pytest.raises(FAILING[name], match=".*".join(map(re.escape, said.split("…")))):
        strategy.train(benchmark.train_stream[1])


def test_shipped_icarl_fails_with_avalanches_own_growing_head_and_the_fixed_one_does_not():
    for name in ("avalanche-icarl", "avalanche-icarl-fixed"):
        model = vit()
        model.head = IncrementalClassifier(model.embed_dim)
        strategy, benchmark = build(name, model, train_epochs=1), benchmark_of()
        strategy.train(benchmark.train_stream[0])
        if name.endswith("-fixed"):
            strategy.train(benchmark.train_stream[1])
        else:
            with pytest.raises(RuntimeError, match="size mismatch for train_classifier"):
                strategy.train(benchmark.train_stream[1])


@pytest.mark.parametrize("name", ENDS_WELL)
def test_a_row_with_a_memory_or_all_the_data_ends_well_above_naive(name):
    assert run("avalanche-naive").accuracies[-1] < FINETUNING + 0.05
    assert run(name).accuracies[-1] > FINETUNING + 0.1  # BiC: 0.14 to 0.42 over six seeds


def test_joint_training_alone_trains_on_the_stream_and_only_once():
    assert [name for name, kind in SHIPPED.items() if kind.trains_on_stream] == ["avalanche-joint"]
    with pytest.raises(AlreadyTrainedError):
        run("avalanche-joint").strategy.train(benchmark_of().train_stream)


# Their parts


@pytest.mark.parametrize(
    ("name", "training"), [("avalanche-icarl", True), ("avalanche-icarl-fixed", False)]
)
def test_icarl_is_built_from_the_models_own_parts_and_only_the_fixed_teacher_is_in_eval_mode(
    name, training
):
    strategy, model = run(name).strategy, run(name).model
    teacher = strategy._criterion.old_model
    assert {module.training for module in teacher.modules()} == {training}
    assert (
        torch.equal(teacher.train_classifier.weight, model.head.weight)
        and teacher.train_classifier is not model.head
    )
    assert (
        strategy.model.train_classifier is model.head
        and strategy.model.feature_extractor.model is model
    )
    images = torch.randn(3, 1, 8, 8)
    assert torch.equal(
        strategy.model.train_classifier(strategy.model.feature_extractor(images)), model(images)
    )


@pytest.mark.parametrize(
    ("kind", "options", "of_host"),
    [
        ("lwf", {"alpha": 3}, lambda s: s.plugins[0].lwf.alpha),
        ("ewc", {"ewc_lambda": 7}, lambda s: s.plugins[0].ewc_lambda),
        ("der-fixed", {"alpha": 3}, lambda s: s.alpha),
        ("bic-fixed", {"lr": 0.3}, lambda s: s.plugins[0].lr),
    ],
)
def test_an_option_reaches_the_host(kind, options, of_host):
    (value,) = options.values()
    assert of_host(build(f"avalanche-{kind}", **options)) == value
    assert of_host(build(f"avalanche-{kind}")) != value


def budget(strategy):
    owners = [strategy, *strategy.plugins]
    return next(getattr(o, n) for o in owners for n in ("mem_size", "memory_size") if hasattr(o, n))


@pytest.mark.parametrize("name", SHIPPED)
def test_mem_size_is_an_option_of_the_rows_with_a_memory_and_of_no_other(name):
    has_memory = name.removeprefix("avalanche-") in MEMORY
    assert ("mem_size" in inspect.signature(SHIPPED[name]).parameters) is has_memory
    if has_memory:
        assert budget(build(name, mem_size=40)) == 40 and budget(build(name, mem_size=None)) == 2000
        for wrong in (0, -3, True):
            with pytest.raises(
                ValueError, match=f"mem_size must be a whole number of 1 or more, got {wrong}"
            ):
                build(name, mem_size=wrong)
    else:
        with pytest.raises(
            TypeError, match=f"{SHIPPED[name].__name__}.* unexpected keyword argument: mem_size"
        ):
            build(name, mem_size=40)


@pytest.mark.parametrize(
    "name", ["avalanche-der-fixed", "avalanche-er_ace", "avalanche-er_ace-fixed"]
)
def test_a_memory_smaller_than_the_batch_is_replayed_whole(name):
    assert (
        build(name, mem_size=7).batch_size_mem == 7
        and build(name, mem_size=21).batch_size_mem == 20
    )
    replayed = []
    watch = At(
        "after_forward", lambda strategy: replayed.append(strategy.replay_loader is not None)
    )
    strategy, benchmark = (
        build(name, mem_size=7, plugins=[watch], train_epochs=1),
        benchmark_of(per_class=10),
    )
    for experience in benchmark.train_stream[:2]:
        strategy.train(experience)
    assert replayed == [False, True]


# What is refused


@pytest.mark.parametrize("name", SHIPPED)
def test_an_unknown_option_is_named_and_so_is_one_of_another_row(name):
    for wrong in ("train_epoch", "memory_size", "rule"):
        with pytest.raises(TypeError, match=f"unexpected keyword argument.*{wrong}"):
            build(name, **{wrong: 3})


@pytest.mark.parametrize("value", [0.01, 1])
def test_a_hold_out_without_an_image_is_refused_at_construction(value):
    with pytest.raises(ValueError, match=f"val_percentage must be in .* mem_size=60; got {value}"):
        build("avalanche-bic", val_percentage=value)


@pytest.mark.parametrize("name", SHIPPED)
def test_a_criterion_of_the_callers_own_is_used_or_refused(name):
    smooth = nn.CrossEntropyLoss(label_smoothing=0.1)
    if issubclass(SHIPPED[name], shipped.DER | shipped.ER_ACE | shipped.ICaRL):
        with pytest.raises(
            ValueError, match=f"{SHIPPED[name].__name__} has a loss of its own.*label_smoothing=0.1"
        ):
            build(name, criterion=smooth)
    else:
        assert build(name, criterion=smooth)._criterion is smooth


@pytest.mark.parametrize("name", ["avalanche-icarl", "avalanche-icarl-fixed"])
def test_icarl_needs_a_model_with_embedding_and_head(name):
    with pytest.raises(TypeError, match="needs an EmbeddingModel.*got Sequential"):
        build(name, mlp("growing"))


def test_other_rows_take_any_module():
    strategy = build("avalanche-replay", mlp("incremental"), train_epochs=1)
    strategy.train(benchmark_of().train_stream[0])
    assert strategy.clock.train_exp_counter == 1
