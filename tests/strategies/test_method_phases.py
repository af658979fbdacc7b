"""Phases of a step after the main epochs: what trains in them, on what, at which rate."""

import math
import warnings
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from method_runs import build, moved, steps_of, weights
from strategy_runs import At, benchmark_of

from avalanche_hfc.models import ResNet32
from avalanche_hfc.plugins.features import features_of
from avalanche_hfc.plugins.steps import StepTable
from avalanche_hfc.plugins.teacher import FrozenTeacher
from avalanche_hfc.strategies import IncrementalTemplate
from avalanche_hfc.strategies._base.phases import Phased, lr_factor, optimizer_like

# Tuning


@pytest.mark.parametrize("name", ["podnet", "podnet-cscct", "afc"])
def test_old_proxies_rest_in_the_main_phase_and_proxies_alone_move_in_the_tuning(name):
    marks = []
    events = {"before_training_epoch": "train", "before_phase_epoch": "tune"}
    watch = [
        At(event, lambda s, phase=phase: marks.append((phase, weights(s))))
        for event, phase in events.items()
    ]
    strategy = steps_of(build(name, plugins=watch, tune_epochs=2), 2)
    second = [
        state
        for phase, state in marks
        if "head.old_proxies" in state and len(state["head.old_proxies"])
    ]
    trained, tuned, end = second[0], second[-2], weights(strategy)
    assert "head.old_proxies" not in moved(trained, tuned) and {
        "head.new_proxies",
        "head.scale",
    } <= moved(trained, tuned)
    assert moved(tuned, end) == {"head.old_proxies", "head.new_proxies"}
    assert [phase for phase, _ in marks] == ["train"] * 4 + ["tune"] * 2


@pytest.mark.parametrize(("name", "options"), [("podnet", {}), ("dytox", {"repeats": 1})])
def test_tuning_sees_as_many_images_of_every_class_with_the_new_ones_herded_and_main_losses_left_out(
    name, options
):
    seen, terms = [], []
    strategy = build(
        name,
        tune_epochs=1,
        plugins=[At("after_phase_epoch", lambda s: terms.append(set(s.losses.means)))],
        **options,
    )
    loss = strategy.tuning_loss
    strategy.tuning_loss = lambda x, y: seen.append(y) or loss(x, y)
    steps_of(strategy, 3)
    last = torch.cat(seen)[-12:]
    assert torch.bincount(last).tolist() == [2] * 6
    assert terms == [{"total", "classification"}] * 2


def test_dytox_tunes_everything_but_the_encoder():
    marks = []
    strategy = steps_of(
        build(
            "dytox",
            tune_epochs=1,
            plugins=[At("before_phase_epoch", lambda s: marks.append(weights(s)))],
        ),
        2,
    )
    names = moved(marks[0], weights(strategy))
    assert {name.split(".")[1] for name in names} == {"block", "tokens", "heads"} and not any(
        name.startswith("encoder") for name in names
    )
    assert {"head.tokens.0", "head.heads.0.linear.weight"} <= names


def test_new_proxies_start_as_centres_of_the_old_models_features():
    met = []

    def look(s):
        if s.clock.train_exp_epochs == 0 and StepTable.of(s).current == 1:
            features = F.normalize(
                features_of(s.model, s.experience.dataset, batch_size=64, device=s.device)
            )
            met.append(
                (
                    features,
                    torch.tensor(list(s.experience.dataset.targets)),
                    s.model.head.new_proxies.clone(),
                    s.model.head,
                )
            )

    strategy = build("podnet", tune_epochs=1, plugins=[At("before_training_epoch", look)])
    steps_of(strategy, 2)
    features, labels, proxies, head = met[0]
    norm = head.old_proxies[:2].norm(dim=-1).mean()
    for row, class_id in enumerate(head.new_ids.tolist()):
        own = features[labels == class_id]  # fewer images than proxies: the centres are the images
        nearest = torch.cdist(F.normalize(proxies[row], dim=-1), own).amin(1)
        assert nearest.max() < 1e-3 and proxies[row].norm(dim=-1).std() < 1e-3 * norm


# FOSTER


def test_boosting_starts_from_the_old_logits_and_the_student_from_the_old_model():
    met = {}

    def start(s):
        if StepTable.of(s).current == 1 and s.clock.train_exp_epochs == 0:
            x = torch.randn(4, 1, 8, 8)
            teacher = FrozenTeacher.of(s).model
            zeros = torch.zeros(4, 32)
            met["boosted"] = (
                s.model.head.boost(teacher.embed(x), zeros)[:, [1, 4]],
                teacher(x)[:, [1, 4]],
            )
            met["extractor"] = s.model.embed(x), teacher.embed(x)

    def student(s):
        x = torch.randn(4, 1, 8, 8)
        teacher = FrozenTeacher.of(s).model
        s.student.eval()
        met["student"] = s.student(x)[:, [1, 4]], teacher(x)[:, [1, 4]]
        s.student.train()

    plugins = [At("before_training_epoch", start), At("before_phase_epoch", student)]
    strategy = build("foster", compress_epochs=1, plugins=plugins)
    model = strategy.model
    steps_of(strategy, 2)
    for one, other in met.values():
        torch.testing.assert_close(one, other)
    assert strategy.model is model and strategy.student is None


def test_compression_leaves_the_boosted_network_alone_falls_along_a_cosine_and_gives_the_model_the_students_weights():
    met = []

    def look(s):
        met.append(
            (
                weights(s),
                {n: v.clone() for n, v in s.student.state_dict().items()},
                s.phase_running.optimizer.param_groups[0],
            )
        )

    def optimizer(parameters):
        return torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=1e-3)

    rates = []
    note = At(
        "after_phase_epoch", lambda s: rates.append(s.phase_running.optimizer.param_groups[0]["lr"])
    )
    plugins = [At("after_phase_epoch", look), note]
    strategy = steps_of(build("foster", compress_epochs=3, plugins=plugins, optimizer=optimizer), 2)
    assert not moved(met[0][0], met[2][0]) and moved(met[0][1], met[2][1])
    assert rates == pytest.approx([0.05, 0.05 * 0.75, 0.05 * 0.25])
    assert met[2][2]["weight_decay"] == 0 and met[2][2]["momentum"] == 0.9
    assert not moved(met[2][1], weights(strategy))


def test_the_boosted_network_predicts_after_a_step_also_from_a_saved_state():
    correct = []
    count = At(
        "after_eval_iteration", lambda s: correct.append(s.mb_output.argmax(1).eq(s.mb_y).sum())
    )
    options = dict(compress_epochs=1, network="boosted")
    model = ResNet32(in_channels=1)
    strategy = steps_of(build("foster", model=model, plugins=[count], **options), 2)
    data = benchmark_of().test_stream[0].dataset
    x, y = torch.stack([data[i][0] for i in range(len(data))]), torch.tensor(list(data.targets))
    boosted, compressed = strategy.predictor(x), strategy.model.eval()(x).detach()
    assert strategy.predictor.embed(x).shape[1] == 2 * 64 and not boosted.allclose(compressed)
    strategy.eval(benchmark_of().test_stream[0])
    assert sum(correct) == boosted.argmax(1).eq(y).sum()
    other = build("foster", model=ResNet32(in_channels=1), plugins=[count], **options)
    other.load_state_dict(strategy.state_dict())
    torch.testing.assert_close(other.predictor(x), boosted, rtol=0, atol=0)


# AFC


def test_the_importance_pass_moves_no_batch_norm_statistics():
    marks = []
    strategy = build("afc", model=ResNet32(in_channels=1), tune_epochs=1)
    original = strategy.find_importance

    def spy(asked):
        before = weights(strategy)
        result = original(asked)
        marks.append(moved(before, weights(strategy)))
        return result

    strategy.find_importance = spy
    steps_of(strategy, 2)
    assert marks == [set(), set()] and strategy.model.stem.training


# Parts of phases


def test_a_cosine_falls_from_one_to_nearly_nothing_and_a_constant_stays():
    assert [lr_factor("cosine", e, 4) for e in range(4)] == pytest.approx(
        [(1 + math.cos(math.pi * e / 4)) / 2 for e in range(4)]
    )
    assert {lr_factor("constant", e, 4) for e in range(4)} == {1.0}


@pytest.mark.parametrize(
    "kind", [torch.optim.SGD, torch.optim.AdamW, torch.optim.Adam, torch.optim.RMSprop]
)
def test_an_optimizer_for_a_phase_is_of_the_same_kind_and_options(kind):
    parameter = torch.nn.Parameter(torch.zeros(1))
    made = optimizer_like(
        kind([torch.nn.Parameter(torch.zeros(2))], lr=0.3, weight_decay=0.7), [parameter], lr=0.1
    )
    assert (
        type(made) is kind
        and made.param_groups[0]["weight_decay"] == 0.7
        and made.param_groups[0]["lr"] == 0.1
    )
    assert made.param_groups[0]["params"] == [parameter]


DISTIL = ("baseline", "icarl", "bic", "podnet", "podnet-cscct", "ssil", "foster", "afc", "dytox")
TEACHERS = [
    *((name, "hfc") for name in ("finetune", "herding-replay")),
    *product(DISTIL, ("host", "hfc")),
]


@pytest.mark.parametrize(("name", "losses"), TEACHERS)
def test_the_teacher_runs_once_in_an_iteration_and_before_the_student(name, losses):
    order = []

    def watch(s):
        if StepTable.of(s).current == 1 and s.clock.train_exp_epochs == 0:
            for model, who in ((FrozenTeacher.of(s).model, "teacher"), (s.model, "student")):
                encoder = model.encoder if name == "dytox" else model
                encoder.backbone.norm.register_forward_hook(
                    lambda *_, who=who: order.append(who) if s.phase == "train" else None
                )

    def start(s):
        order.append("iteration")

    plugins = [At("before_training_epoch", watch), At("before_forward", start)]
    short = {"tune_epochs": 1} if name in ("podnet", "podnet-cscct", "afc", "dytox") else {}
    strategy = build(name, losses=losses, plugins=plugins, train_epochs=1, train_mb_size=6, **short)
    strategy.train(benchmark_of().train_stream[0])
    order.clear()
    ends = At("after_training_epoch", lambda s: order.append("end"))
    strategy.plugins.insert(0, ends)
    strategy.train(benchmark_of().train_stream[1])
    trained = order[: order.index("end")]
    assert (
        trained == ["iteration", "teacher", "student"] * (len(trained) // 3) and len(trained) >= 6
    )


def test_avalanche_takes_the_events_of_phases_for_known_ones():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message="No loggers specified")
        build("podnet", plugins=[At(["before_phase_epoch", "after_phase_epoch"], print)])
    with pytest.warns(UserWarning, match="incompatible callbacks"):
        build("podnet", plugins=[At("after_fish_epoch", print)])


@pytest.mark.parametrize("bases", [(IncrementalTemplate,), (IncrementalTemplate, Phased)], ids=str)
def test_phases_that_nothing_would_run_are_refused(bases):
    with pytest.raises(TypeError, match="Mine has phases: derive it from Phased first"):
        type("Mine", bases, {"phases": lambda self: []})
    assert type("Mine", (Phased, IncrementalTemplate), {}).phases
