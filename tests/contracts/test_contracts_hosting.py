"""What code written for Avalanche expects of a strategy, and what is refused before it is trained."""

import inspect
import warnings

import pytest
import torch
from avalanche.benchmarks import (
    benchmark_from_datasets,
    class_incremental_benchmark,
    split_online_stream,
    with_classes_timeline,
)
from avalanche.models import (
    BaseModel,
    DynamicModule,
    MultiHeadClassifier,
    NCMClassifier,
    TrainEvalModel,
)
from avalanche.training import JointTraining, Naive
from avalanche.training.plugins import RWalkPlugin, SupervisedPlugin
from avalanche.training.supervised import SynapticIntelligence
from avalanche.training.templates.base_sgd import PeriodicEval
from contract_entries import CASES, ENTRIES, OURS, Case
from contract_runs import benchmark_of, build, logits_of, seed
from strategy_runs import At, data_of, digit_tensors, hfc, mlp, train
from torch import nn
from torch.optim import SGD

from avalanche_hfc import TSAViT
from avalanche_hfc.compat import RepairedRWalkPlugin
from avalanche_hfc.models import GrowingLinear
from avalanche_hfc.plugins import FrozenTeacher, GFCPlugin, GRDPlugin, HerdingReplayPlugin
from avalanche_hfc.strategies import AFC, STRATEGIES, FineTune, PODNet

CE = nn.CrossEntropyLoss


def case_of(name):
    return next(case for case in CASES if case.name == name)


def sgd(model):
    return SGD(model.parameters(), lr=0.05)


# Arguments


@pytest.mark.parametrize("name", STRATEGIES)
def test_model_optimizer_and_criterion_come_first_by_position(name):
    kind, entry = STRATEGIES[name], ENTRIES[name]
    assert list(inspect.signature(kind).parameters)[:3] == ["model", "optimizer", "criterion"]
    model, criterion = entry.model(), CE()
    optimizer = sgd(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        strategy = kind(model, optimizer, criterion, **entry.options)
    given = {id(parameter) for parameter in model.parameters()}
    assert {id(parameter) for parameter in strategy.model.parameters()} == given
    assert strategy.optimizer is optimizer
    assert "icarl" in name[9:] or criterion in (
        strategy._criterion,
        getattr(strategy._criterion, "eval_criterion", None),
    )


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_takes_the_mode_of_periodic_evaluation(name):
    strategy = build(Case(name, None), peval_mode="iteration", eval_every=1)
    periodic = next(plugin for plugin in strategy.plugins if isinstance(plugin, PeriodicEval))
    assert (periodic.peval_mode, periodic.eval_every) == ("iteration", 1)


# Evaluation


@pytest.mark.parametrize("name", OURS)
def test_an_evaluation_before_the_first_step_has_an_answer(name):
    seed()
    strategy, benchmark = build(case_of(name)), benchmark_of()
    before = {key: value.clone() for key, value in strategy.model.state_dict().items()}
    logits, _ = logits_of(strategy, benchmark.test_stream)
    assert logits.shape[1] == 6 and (logits == -1000).all()  # a head without rows
    after = strategy.model.state_dict()
    assert after.keys() == before.keys()
    assert all(torch.equal(value, after[key]) for key, value in before.items())


def test_a_model_that_was_trained_before_is_evaluated_as_it_is():
    torch.manual_seed(0)
    model, (x, y) = mlp("fixed"), digit_tensors(6, 6, 60)
    optimizer = SGD(model.parameters(), lr=0.3)
    for _ in range(200):
        optimizer.zero_grad()
        CE()(model(x), y).backward()
        optimizer.step()
    expected = (model(x).argmax(1) == y).float().mean().item()
    results = hfc(model).eval(benchmark_of().test_stream)
    assert expected > 0.9
    assert results["Top1_Acc_Stream/eval_phase/test_stream/Task000"] == pytest.approx(expected)


class Follows(DynamicModule):
    """Adds a number that depends on the experience to every logit of an even class."""

    def __init__(self):
        super().__init__()
        self.current = -1

    def adaptation(self, experience):
        self.current = experience.current_experience

    def forward(self, logits):
        return logits + 100 * self.current * (torch.arange(logits.shape[1]) % 2 == 0)


def test_a_module_that_follows_the_experience_does_so_in_evaluation_and_comes_back():
    torch.manual_seed(0)
    model = nn.Sequential(mlp("incremental"), Follows())
    met = []
    watch = At("after_eval_forward", lambda s: met.append((model[1].current, len(s.mb_x))))
    strategy = hfc(model, plugins=[watch])
    benchmark = benchmark_of()
    train(strategy, benchmark.train_stream[:2])
    width = model[0][1].classifier.out_features
    strategy.eval(benchmark.test_stream)
    assert [current for current, _ in met] == [0, 1, 2]
    assert model[1].current == 1  # the step that was trained last
    assert model[0][1].classifier.out_features == width == 6


def test_the_criterion_that_is_reported_is_not_what_later_plugins_make_of_it():
    torch.manual_seed(0)
    met = []

    class AddsInPlace(SupervisedPlugin):
        def before_backward(self, strategy, **kwargs):
            met.append(CE()(strategy.mb_output, strategy.mb_y).item())
            strategy.loss += 5.0

    strategy = hfc(mlp(), plugins=[AddsInPlace()], train_epochs=1)
    strategy.train(benchmark_of().train_stream[0])
    means = strategy.epoch_losses()
    assert means["criterion"] == pytest.approx(sum(met) / len(met), rel=1e-5)
    assert means["total"] == pytest.approx(means["criterion"] + 5, rel=1e-5)


def test_the_teacher_of_a_model_with_two_classifiers_answers_with_the_trained_one():
    torch.manual_seed(0)
    body, head = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Dropout(0.5)), nn.Linear(8, 3)
    teacher = FrozenTeacher()
    teacher.hold(TrainEvalModel(body, head, NCMClassifier()), step=0)
    x = torch.randn(4, 1, 8, 8)
    expected = head(body.eval()(x))
    assert torch.equal(teacher.output(x, lambda model, x: model(x)), expected)
    assert not body.training and not head.training


# What cannot be trained


class Returns(nn.Module):
    def __init__(self, wrap):
        super().__init__()
        self.model, self.wrap = mlp("fixed"), wrap

    def forward(self, x):
        return self.wrap(self.model(x))


class MultiHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Flatten(), nn.Linear(64, 8)), MultiHeadClassifier(8)


def refused(match, model=None, benchmark=None, **options):
    torch.manual_seed(0)
    model = mlp() if model is None else model
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(ValueError, match=match):
        hfc(model, **options).train((benchmark or benchmark_of()).train_stream[0])
    after = model.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())


@pytest.mark.parametrize(
    ("wrap", "found"), [(lambda z: {"logits": z}, "a dict"), (lambda z: (z, z), "a tuple")]
)
@pytest.mark.parametrize("plain", [False, True], ids=["ours", "naive"])
def test_a_model_that_returns_no_tensor_is_refused(wrap, found, plain, annotations_unchecked):
    model = Returns(wrap)
    if not plain:
        refused(f"must return logits.*returns {found}", model)
        return
    host = Naive(model=model, optimizer=sgd(model), plugins=[GFCPlugin()], evaluator=None)
    with pytest.raises(ValueError, match=f"must return logits.*returns {found}"):
        host.train(benchmark_of().train_stream[0])


def test_a_model_with_a_head_for_each_task_is_refused():
    model = MultiHead()
    with pytest.raises(ValueError, match="HFCStrategy needs .* one head .*MultiHeadClassifier"):
        hfc(model)
    for plugin in (GFCPlugin(), HerdingReplayPlugin(mem_size=12)):
        host = Naive(model=model, optimizer=sgd(model), plugins=[plugin], evaluator=None)
        with pytest.raises(ValueError, match=f"{type(plugin).__name__} needs .* one head"):
            host.train(benchmark_of().train_stream[0])


def timeline(*steps, dtype=torch.float32):
    """A benchmark of these labels, one experience for each list."""
    parts = []
    for labels in steps:
        x = torch.randn(len(labels), 1, 8, 8, dtype=dtype)
        parts.append(data_of(x, torch.tensor(labels)))
    return with_classes_timeline(benchmark_from_datasets(train=parts, test=parts))


def test_labels_that_are_no_class_ids_are_refused():
    refused(r"label must be a whole number.*(float)", benchmark=timeline([0.0, 1.0, 0.0, 1.0]))
    refused(r"label must be a whole number.*(bool)", benchmark=timeline([True, False, True]))
    refused(r"at most 99999, got 10000000. Number the classes", benchmark=timeline([0, 10**7]))
    with pytest.raises(ValueError, match="at most 99999, got 10000000"):
        GrowingLinear(4).grow([10**7])


def test_images_of_another_dtype_than_the_model_are_refused_with_both_named():
    found = "images are torch.float64, the weights of the model torch.float32"
    refused(found, mlp("fixed"), timeline([0, 1], dtype=torch.float64))


def test_a_class_that_comes_again_is_refused_in_the_first_step():
    refused(r"Classes \[2\] come in several experiences", benchmark=timeline([0, 1], [2], [2, 3]))


def test_an_online_stream_is_refused_by_its_type():
    benchmark = timeline([0, 1, 0, 1], [2, 3, 2, 3])
    online = split_online_stream(benchmark.train_stream, experience_size=2)
    with pytest.raises(ValueError, match="OnlineCLExperience .* online streams are not supported"):
        hfc(mlp()).train(next(iter(online)))


def test_an_optimizer_has_every_parameter_that_trains_and_no_frozen_one_is_added():
    model = mlp()
    with pytest.raises(ValueError, match=r"lacks 2 parameters .* such as 0\.1\.weight"):
        hfc(model, optimizer=SGD(model[1].parameters(), lr=0.1))
    model[0].requires_grad_(False)
    before = model[0][1].weight.clone()
    strategy = hfc(model, optimizer=SGD(model[1].parameters(), lr=0.1))
    train(strategy, benchmark_of().train_stream[:2])
    (group,) = strategy.optimizer.param_groups
    assert {id(p) for p in group["params"]} == {id(p) for p in model[1].parameters()}
    assert torch.equal(model[0][1].weight, before)


@pytest.mark.parametrize("second", [PODNet, AFC])
def test_a_second_method_on_a_model_that_has_learned_is_refused(second):
    entry = ENTRIES["podnet"]
    model = entry.model()
    PODNet(model=model, optimizer=sgd(model))
    second(model=model, optimizer=sgd(model))  # nothing has been learned yet
    model.head.grow([0, 1, 2])
    with pytest.raises(ValueError, match="CosineHead has learned 3 classes"):
        second(model=model, optimizer=sgd(model))


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("avalanche-lwf", "task labels"),
        ("avalanche-lwf-fixed", "task labels"),
        ("avalanche-der", "task labels"),
        ("avalanche-der-fixed", "task labels"),
        ("avalanche-icarl", "task labels"),
        ("avalanche-icarl-fixed", "task labels"),
        ("avalanche-bic", "task labels"),
        ("avalanche-bic-fixed", "task labels"),
    ],
)
def test_a_row_refuses_a_benchmark_that_its_host_cannot_read(name, found):
    parts = {key: data_of(*digit_tensors(6, 6, skip)) for key, skip in (("train", 0), ("test", 60))}
    benchmark = class_incremental_benchmark(
        parts, num_experiences=3, class_order=[4, 1, 5, 0, 2, 3]
    )
    strategy = build(case_of(name))
    with pytest.raises(ValueError, match=f"{type(strategy).__name__} needs .*{found}.*nc_benchm"):
        strategy.train(benchmark.train_stream[0])


def test_a_loss_is_refused_in_joint_training_where_no_class_is_old():
    for plugin in (GFCPlugin(), GRDPlugin()):
        model = mlp()
        host = JointTraining(
            model=model, optimizer=sgd(model), criterion=CE(), plugins=[plugin], evaluator=None
        )
        with pytest.raises(ValueError, match="cannot act in JointTraining.*no class is old"):
            host.train(benchmark_of().train_stream)


class Doubled(nn.CrossEntropyLoss):
    def forward(self, logits, targets):
        return 2 * super().forward(logits, targets)


def test_a_cross_entropy_with_a_forward_of_its_own_is_refused():
    refused("Doubled, a CrossEntropyLoss with a forward of its own", criterion=Doubled())
    with pytest.raises(ValueError, match="Doubled, a CrossEntropyLoss with a forward of its own"):
        FineTune(model=mlp(), optimizer=sgd(mlp()), criterion=Doubled())


def test_herding_replay_is_refused_in_a_host_that_may_have_a_memory():
    model = mlp()
    common = dict(model=model, optimizer=sgd(model), criterion=CE(), evaluator=None)
    unknown = SynapticIntelligence(
        **common, si_lambda=0.1, plugins=[HerdingReplayPlugin(mem_size=12)]
    )
    with pytest.raises(
        ValueError, match="cannot act in SynapticIntelligence.*declare takes_herding_replay"
    ):
        unknown.train(benchmark_of().train_stream[0])
    replay = build(case_of("avalanche-replay"), plugins=[HerdingReplayPlugin(mem_size=12)])
    with pytest.raises(ValueError, match="HerdingReplayPlugin cannot act in ShippedReplay"):
        replay.train(benchmark_of().train_stream[0])


# After an error


class Breaks(SupervisedPlugin):
    """Raises once, at an event of the second step."""

    def __init__(self, event):
        super().__init__()
        self.broken = False
        setattr(self, event, self.act)

    def act(self, strategy, **kwargs):
        if strategy.clock.train_exp_counter == 1 and not self.broken:
            self.broken = True
            raise OSError("the disk is full")


@pytest.mark.parametrize("event", ["before_update", "after_training_epoch"])
@pytest.mark.parametrize("name", ["hfc", "icarl", "podnet", "foster", "dytox", "ranpac"])
def test_after_an_error_inside_a_step_only_the_same_experience_is_trained(name, event):
    seed()
    strategy, benchmark = build(case_of(name), plugins=[Breaks(event)]), benchmark_of()
    first, second, third = benchmark.train_stream
    strategy.train(first)
    with pytest.raises(OSError, match="the disk is full"):
        strategy.train(second)
    with pytest.raises(ValueError, match=r"Step 1, with classes \[0, 5\], was begun .* \[2, 3\]"):
        strategy.train(third)
    strategy.train(second)
    strategy.train(third)
    assert strategy.step_table.step_of == {1: 0, 4: 0, 0: 1, 5: 1, 2: 2, 3: 2}


def test_after_an_error_a_plugin_in_avalanches_host_refuses_the_next_experience():
    model = mlp()
    host = Naive(
        model=model,
        optimizer=sgd(model),
        criterion=CE(),
        train_mb_size=8,
        plugins=[GFCPlugin(), Breaks("before_update")],
        evaluator=None,
    )
    first, second, third = benchmark_of().train_stream
    host.train(first)
    with pytest.raises(OSError, match="the disk is full"):
        host.train(second)
    with pytest.raises(ValueError, match=r"Step 1, with classes \[0, 5\], was begun"):
        host.train(third)


# Avalanche's parts with ours


def test_rwalk_survives_a_head_that_had_no_rows():
    for plugin in (RWalkPlugin(), RepairedRWalkPlugin()):
        torch.manual_seed(0)
        model = mlp("growing")
        host = Naive(
            model=model,
            optimizer=sgd(model),
            criterion=CE(),
            train_mb_size=8,
            plugins=[plugin],
            evaluator=None,
        )
        if type(plugin) is RWalkPlugin:  # once it does not raise, the repair can go
            with pytest.raises(RuntimeError, match="numel"):
                train(host, benchmark_of().train_stream)
        else:
            train(host, benchmark_of().train_stream)
            assert plugin.exp_penalties["1.weight"].data.shape == model[1].weight.shape


def test_the_backbones_are_base_models_of_avalanche():
    assert issubclass(TSAViT, BaseModel) and issubclass(type(ENTRIES["dytox"].model()), BaseModel)
