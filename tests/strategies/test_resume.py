"""Stop anywhere, write, read in a fresh strategy on a fresh benchmark under another seed, go on:
the same bits.
"""

import io
import random
from functools import partial

import numpy as np
import pytest
import torch
from avalanche.evaluation.metrics import loss_metrics
from avalanche.training.plugins import (
    EarlyStoppingPlugin,
    EvaluationPlugin,
    EWCPlugin,
    LRSchedulerPlugin,
)
from strategy_runs import (
    CLASSES,
    At,
    benchmark_of,
    differing,
    herding_of,
    hfc,
    jitter,
    left_by,
    mlp,
    run,
    train,
    vit,
)
from torch.optim import AdamW
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, ReduceLROnPlateau

from avalanche_hfc import official_parts

BETWEEN_EPOCHS = ("before_training_epoch", "after_training_epoch", "after_training_exp")
SMALL_OFFICIAL = dict(
    backbone="vit_tiny_patch16_224",
    image_size=8,
    patch_size=4,
    msa_blocks=2,
    frozen_blocks=1,
    adapter_dim=4,
    backbone_options=dict(embed_dim=32, num_heads=2, in_chans=1),
)


class Camera(At):
    """Keeps a written state of every moment that `wanted` names: (event, step, epochs done,
    place).
    """

    def __init__(self, place, wanted):
        def take(event, strategy):
            moment = (
                event,
                strategy.clock.train_exp_counter,
                strategy.clock.train_exp_epochs,
                place,
            )
            if wanted == "all" or moment in wanted:
                self.states[moment] = written(strategy.state_dict())

        self.states = {}
        super().__init__((), None)
        for event in BETWEEN_EPOCHS:
            setattr(self, event, lambda strategy, event=event, **kwargs: take(event, strategy))


def written(state):
    file = io.BytesIO()
    torch.save(state, file)
    return file.getvalue()


def read(content):
    return torch.load(io.BytesIO(content), weights_only=True)


class Case:
    """How to build a strategy; `schedule(optimizer)` stands between two cameras."""

    def __init__(
        self,
        model,
        *,
        schedule=None,
        groups=None,
        transform=None,
        train_options=None,
        validate=False,
        **options,
    ):
        self.model, self.schedule, self.groups, self.transform = model, schedule, groups, transform
        self.train_options, self.validate, self.options = train_options or {}, validate, options

    def build(self, cameras):
        model = self.model()
        optimizer = AdamW(self.groups(model) if self.groups else model.parameters(), lr=3e-3)
        plugins = [cameras[0], *(self.schedule(optimizer) if self.schedule else ()), cameras[1]]
        return hfc(model, optimizer=optimizer, plugins=plugins, **self.options)

    def train(self, strategy, benchmark, first=0):
        options = dict(self.train_options)
        if self.validate:
            options["eval_streams"] = [benchmark.test_stream]
        return train(strategy, benchmark.train_stream[first:], **options)

    def benchmark(self):
        return benchmark_of(train_transform=self.transform)


class Official(Case):
    def __init__(self, quirks, **options):
        super().__init__(None, form="official", **options)
        self.quirks = quirks

    def build(self, cameras):
        model, optimizer, plugins = official_parts(optimizer_quirks=self.quirks, **SMALL_OFFICIAL)
        return hfc(
            model, optimizer=optimizer, plugins=[cameras[0], *plugins, cameras[1]], **self.options
        )


def two_groups(model):
    return [
        {"params": list(model[0].parameters()), "lr": 1e-3},
        {"params": list(model[1].parameters())},
    ]


def cosine(optimizer):
    return [LRSchedulerPlugin(CosineAnnealingLR(optimizer, 3))]


def by_lambda(optimizer):
    return [
        LRSchedulerPlugin(
            LambdaLR(optimizer, lambda iteration: 0.9**iteration), step_granularity="iteration"
        )
    ]


def plateau(metric, threshold, optimizer):
    return [
        LRSchedulerPlugin(
            ReduceLROnPlateau(optimizer, factor=0.5, patience=0, threshold=threshold), metric=metric
        )
    ]


def early_stop(optimizer):
    return [EarlyStoppingPlugin(patience=1, val_stream_name="test_stream"), *cosine(optimizer)]


CASES = {
    "cosine": Case(partial(mlp, dropout=0.3), schedule=cosine, transform=jitter),
    "lambda, two groups, growing head": Case(
        partial(mlp, "growing", dropout=0.3),
        schedule=by_lambda,
        groups=two_groups,
        transform=jitter,
        form="paper",
    ),
    "plateau on the training loss": Case(
        mlp, schedule=partial(plateau, "train_loss", 0.0), train_epochs=3
    ),
    "plateau on the test loss": Case(
        mlp, schedule=partial(plateau, "val_loss", 0.2), train_epochs=3, validate=True, eval_every=1
    ),
    "early stop": Case(mlp, schedule=early_stop, train_epochs=4, validate=True, eval_every=1),
    "early stop, evaluated every second epoch": Case(
        mlp, schedule=early_stop, train_epochs=4, validate=True, eval_every=2
    ),
    "workers": Case(
        partial(mlp, dropout=0.3),
        schedule=cosine,
        transform=jitter,
        train_options={"num_workers": 2},
    ),
    "optimizer reset in every step": Case(mlp, train_options={"reset_optimizer_state": True}),
    "moments kept from step to step": Case(mlp, reset_optimizer=False),
    "incomplete batches left out": Case(
        partial(mlp, dropout=0.3), transform=jitter, drop_last=True
    ),
    "vit": Case(
        partial(
            vit,
            drop_path=0.3,
            backbone_options=dict(embed_dim=32, num_heads=2, in_chans=1, proj_drop_rate=0.1),
        )
    ),
    "vit with a frozen prefix": Case(
        partial(vit, msa_blocks=2, frozen_blocks=1, drop_path=0.3), form="paper"
    ),
    "official": Official(quirks=False),
    "official with quirks": Official(quirks=True),
    "official with quirks as an option": Official(quirks=False, optimizer_quirks=True),
}
EVERY_MOMENT = ("cosine",)  # the others: some moments of the second step
SOME = {
    ("after_training_epoch", 1, 0, "first"),
    ("after_training_epoch", 1, 0, "last"),
    ("before_training_epoch", 1, 1, "first"),
    ("before_training_epoch", 1, 2, "first"),
    ("before_training_epoch", 1, 2, "last"),
    ("after_training_exp", 1, 2, "last"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_run_goes_on_bit_for_bit_from_every_moment_between_epochs(name):
    case = CASES[name]
    torch.manual_seed(3)
    np.random.seed(3)
    wanted = (
        "all"
        if name in EVERY_MOMENT
        else {moment for moment in SOME if name != "workers" or moment[3] == "first"}
    )
    cameras = [Camera(place, wanted) for place in ("first", "last")]
    unbroken = left_by(case.train(case.build(cameras), case.benchmark()))
    states = cameras[0].states | cameras[1].states
    assert len(states) >= (30 if name in EVERY_MOMENT else 2)
    for number, (moment, content) in enumerate(states.items()):
        torch.manual_seed(100 + number)
        benchmark = case.benchmark()
        strategy = case.build([Camera("first", ()), Camera("last", ())])
        state = read(content)
        strategy.load_state_dict(state)
        case.train(strategy, benchmark, first=state["clock"]["train_exp_counter"])
        assert differing(unbroken, left_by(strategy)) == [], moment


def test_the_three_generators_come_back_with_the_state():
    def draws():
        return torch.rand(()).item(), np.random.normal(), random.random()

    np.random.normal()  # leaves the second of its pair in the state
    strategy = hfc(mlp())
    content = written(strategy.state_dict())
    expected = draws()
    strategy.load_state_dict(read(content))
    assert draws() == expected != draws()


@pytest.mark.parametrize("when", ["after train", "after_training"])
def test_a_run_goes_on_bit_for_bit_between_steps(when):
    case, states = CASES["cosine"], []

    def build():
        torch.manual_seed(len(states))
        model = partial(mlp, dropout=0.3)()
        optimizer = AdamW(model.parameters(), lr=3e-3)
        keep = At(
            "after_training",
            lambda strategy: (
                states.append(written(strategy.state_dict())) if when == "after_training" else None
            ),
        )
        return hfc(model, optimizer=optimizer, plugins=[*cosine(optimizer), keep])

    strategy = build()
    for experience in case.benchmark().train_stream:
        strategy.train(experience)
        if when == "after train":
            states.append(written(strategy.state_dict()))
    unbroken = left_by(strategy)
    for step, content in enumerate(list(states[:3])):
        strategy = build()
        strategy.load_state_dict(read(content))
        assert (
            differing(unbroken, left_by(case.train(strategy, case.benchmark(), first=step + 1)))
            == []
        )


def test_saving_changes_nothing():
    case = CASES["cosine"]

    def final(wanted):
        torch.manual_seed(3)
        np.random.seed(3)
        return left_by(
            case.train(
                case.build([Camera("first", wanted), Camera("last", wanted)]), case.benchmark()
            )
        )

    assert differing(final("all"), final(())) == []


def stopped_in_step_one():
    case = CASES["cosine"]
    camera = Camera("first", {("after_training_epoch", 1, 0, "first")})
    benchmark = case.benchmark()
    strategy = case.build([camera, Camera("last", ())])
    unbroken = left_by(case.train(strategy, benchmark))
    return case, benchmark, strategy, read(next(iter(camera.states.values()))), unbroken


def test_a_used_strategy_goes_back_to_an_earlier_state():
    """Also to one with a narrower head, and to its very start, where there is no teacher yet."""
    case, benchmark, strategy, state, unbroken = stopped_in_step_one()
    strategy.load_state_dict(state)
    assert differing(unbroken, left_by(case.train(strategy, benchmark, first=1))) == []

    fresh = case.build([Camera("first", ()), Camera("last", ())])
    start = fresh.state_dict()
    first = left_by(case.train(fresh, benchmark))
    fresh.load_state_dict(start)
    torch.manual_seed(77)
    fresh.train(benchmark.train_stream[0])
    fresh.load_state_dict(start)
    assert differing(first, left_by(case.train(fresh, benchmark))) == []


def test_after_a_load_inside_a_step_another_experience_is_refused_and_the_right_one_still_goes_on():
    case, benchmark, _, state, unbroken = stopped_in_step_one()
    strategy = case.build([Camera("first", ()), Camera("last", ())])
    strategy.load_state_dict(state)
    with pytest.raises(
        ValueError, match=r"inside step 1, with classes \[0, 5\].*Got one with classes \[2, 3\]"
    ):
        strategy.train(benchmark.train_stream[2])
    assert differing(unbroken, left_by(case.train(strategy, benchmark, first=1))) == []
    assert CLASSES[1] == [0, 5]


def test_a_state_loaded_and_saved_again_is_the_same_state():
    case, _, _, state, _ = stopped_in_step_one()
    strategy = case.build([Camera("first", ()), Camera("last", ())])
    strategy.load_state_dict(state)
    assert written(strategy.state_dict()) == written(state)


def test_a_state_of_another_strategy_or_format_or_with_other_plugins_is_refused_before_anything_changes():
    case, _, _, state, _ = stopped_in_step_one()
    strategy = case.build([Camera("first", ()), Camera("last", ())])
    before = left_by(strategy)
    with pytest.raises(ValueError, match="HFCStrategy in format 1 is needed, got 'Naive'"):
        strategy.load_state_dict(state | {"strategy": "Naive"})
    with pytest.raises(ValueError, match="in format 7"):
        strategy.load_state_dict(state | {"format": 7})
    assert differing(before, left_by(strategy)) == []
    model = mlp()
    other = hfc(model, plugins=[Camera("first", ())])
    before = left_by(other)
    with pytest.raises(ValueError, match="LRSchedulerPlugin.*Build the strategy as it was"):
        other.load_state_dict(state)
    assert differing(before, left_by(other)) == []


@pytest.mark.parametrize(
    "options", [dict(form="paper"), dict(compensation_weight=2.0), dict(relation_weight=0.5)]
)
def test_a_state_of_another_form_or_weight_is_refused_before_anything_changes(options):
    strategy = hfc(mlp())
    before = left_by(strategy)
    with pytest.raises(
        ValueError, match="G(FC|RD)Plugin: the state was trained with .*this plugin has .*balanced"
    ):
        strategy.load_state_dict(hfc(mlp(), **options).state_dict())
    assert differing(before, left_by(strategy)) == []


def test_a_state_of_another_memory_or_optimizer_is_refused_before_anything_changes():
    strategy = hfc(mlp())
    before = left_by(strategy)
    with pytest.raises(ValueError, match="total=13"):
        strategy.load_state_dict(hfc(mlp(), mem_size=13).state_dict())
    model = mlp()
    with pytest.raises(ValueError, match="optimizer 'SGD', now 'AdamW'"):
        strategy.load_state_dict(
            hfc(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1)).state_dict()
        )
    assert differing(before, left_by(strategy)) == []


def test_a_refused_step_leaves_a_strategy_that_can_be_saved_and_trained():
    strategy, benchmark = hfc(mlp(), mem_size=4), benchmark_of()
    train(strategy, [])
    with pytest.raises(ValueError, match="too small for 6 classes"):
        strategy.train(benchmark.train_stream[0])
    assert strategy.state_dict()["turn"] is None and strategy.state_dict()["steps"]["classes"] == []


def test_exemplars_say_where_their_data_is_looked_for_after_a_load():
    first = run()
    second = hfc(mlp())
    second.load_state_dict(first.state_dict())
    with pytest.raises(ValueError, match="Call find_sources"):
        herding_of(second).class_means(second)
    herding_of(second).find_sources(benchmark_of().train_stream[0])
    for class_id, mean in herding_of(first).class_means(first).items():
        assert torch.equal(mean, herding_of(second).class_means(second)[class_id])


@pytest.mark.parametrize(
    "event", ["after_training_iteration", "before_forward", "before_training_exp", "after_eval"]
)
def test_no_state_can_be_taken_in_an_epoch_an_evaluation_or_the_start_of_a_step(event):
    met = []

    def attempt(strategy):
        with pytest.raises(RuntimeError, match="state_dict: not inside an e"):
            strategy.state_dict()
        met.append(event)

    strategy = hfc(mlp(), plugins=[At(event, attempt)], eval_every=1)
    strategy.train(benchmark_of().train_stream[0])
    assert met


def test_after_an_error_in_an_epoch_no_state_can_be_taken_until_an_earlier_one_is_loaded():
    def fail(strategy):
        raise KeyboardInterrupt

    strategy = hfc(mlp(), plugins=[At("after_backward", fail)])
    start = strategy.state_dict()
    with pytest.raises(KeyboardInterrupt):
        strategy.train(benchmark_of().train_stream[0])
    with pytest.raises(RuntimeError, match="a step that an error ended"):
        strategy.state_dict()
    strategy.load_state_dict(start)
    assert strategy.state_dict()["turn"] is None


def test_a_stop_asked_for_before_the_state_was_saved_still_holds_after_it():
    epochs = []

    class Stop(At):
        def __init__(self, active):
            super().__init__(
                "after_training_epoch",
                lambda strategy: strategy.stop_training() if active else None,
            )

    def build(active, camera):
        return hfc(
            mlp(),
            train_epochs=3,
            plugins=[Stop(active), camera, At("before_forward", lambda s: epochs.append(1))],
        )

    camera = Camera("last", {("after_training_epoch", 0, 0, "last")})
    benchmark = benchmark_of()
    train(build(True, camera), benchmark.train_stream[:1])
    epochs.clear()
    strategy = build(False, Camera("last", ()))
    strategy.load_state_dict(read(next(iter(camera.states.values()))))
    strategy.train(benchmark.train_stream[0])
    assert epochs == []


def test_the_means_of_the_epoch_come_back_with_the_state():
    camera = Camera("first", {("after_training_epoch", 0, 0, "first")})
    strategy = hfc(mlp(), plugins=[camera], train_epochs=1)
    strategy.train(benchmark_of().train_stream[0])
    fresh = hfc(mlp(), plugins=[Camera("first", ())], train_epochs=1)
    fresh.load_state_dict(read(next(iter(camera.states.values()))))
    assert fresh.losses.means == strategy.losses.means != {}


def test_the_metrics_that_plugins_read_come_back_with_the_state():
    """Early stopping reads the last evaluation, two epochs ago here; the one before a resumed
    training says something else.
    """
    met, benchmark = {}, benchmark_of()

    def build(name, camera):
        def look(strategy):
            met.setdefault(name, []).append(
                (strategy.clock.train_exp_epochs, strategy.evaluator.get_last_metrics())
            )

        evaluator = EvaluationPlugin(loss_metrics(stream=True), loggers=[])
        return hfc(
            mlp(),
            evaluator=evaluator,
            train_epochs=3,
            eval_every=2,
            plugins=[camera, At("after_training_epoch", look)],
        )

    camera = Camera("first", {("before_training_epoch", 0, 2, "first")})
    build("unbroken", camera).train(benchmark.train_stream[0])
    resumed = build("resumed", Camera("first", ()))
    resumed.load_state_dict(read(next(iter(camera.states.values()))))
    resumed.train(benchmark.train_stream[0])
    assert met["resumed"] == met["unbroken"][2:] != [(2, {})]


def test_a_plugin_of_the_user_takes_part_in_the_state():
    class Counter(At):
        def __init__(self):
            super().__init__(
                "after_training_epoch",
                lambda strategy: self.load_state_dict({"count": self.count + 1}),
            )
            self.count = 0

        def state_dict(self):
            return {"count": self.count}

        def load_state_dict(self, state):
            self.count = state["count"]

    counter = Counter()
    strategy = hfc(mlp(), plugins=[counter])
    train(strategy, benchmark_of().train_stream[:2])
    other = Counter()
    hfc(mlp(), plugins=[other]).load_state_dict(read(written(strategy.state_dict())))
    assert other.count == counter.count == 4


def test_a_plugin_whose_state_cannot_be_asked_for_is_refused_by_name():
    with pytest.raises(ValueError, match="EWCPlugin gives no state"):
        hfc(mlp(), plugins=[EWCPlugin(1.0)]).state_dict()


def test_exemplars_are_not_looked_for_in_a_benchmark_with_other_classes_there():
    strategy = hfc(mlp())
    strategy.train(benchmark_of().train_stream[0])
    fresh = hfc(mlp())
    fresh.load_state_dict(strategy.state_dict())
    with pytest.raises(ValueError, match="exemplars of class 1 have other labels"):
        fresh.train(benchmark_of(order=[0, 5, 4, 1, 2, 3]).train_stream[2])


def test_exemplars_are_not_looked_for_in_a_benchmark_of_another_size():
    strategy = hfc(mlp())
    strategy.train(benchmark_of().train_stream[0])
    fresh = hfc(mlp())
    fresh.load_state_dict(strategy.state_dict())
    with pytest.raises(ValueError, match="stand in 12 training images, the benchmark given has 10"):
        fresh.train(benchmark_of(per_class=5).train_stream[1])
