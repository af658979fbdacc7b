"""HFCStrategy inside a user's pipeline: benchmarks, loggers, plugins, workers, precision, and data
that goes wrong.
"""

import io

import numpy as np
import pytest
import torch
from avalanche.benchmarks import class_incremental_benchmark, nc_benchmark
from avalanche.evaluation.metrics import accuracy_metrics, loss_metrics
from avalanche.logging import InteractiveLogger, TextLogger
from avalanche.training.plugins import EarlyStoppingPlugin, EvaluationPlugin, LRSchedulerPlugin
from strategy_runs import (
    ORDER,
    At,
    benchmark_of,
    data_of,
    differing,
    digit_tensors,
    herding_of,
    hfc,
    left_by,
    mlp,
    run,
    test_images,
    train,
    vit,
)
from torch import nn
from torch.optim import AdamW
from torch.optim.lr_scheduler import CosineAnnealingLR

from avalanche_hfc.benchmarks import split_digits
from avalanche_hfc.plugins import StepTable
from avalanche_hfc.strategies._base.epoch_log import EpochLosses


@pytest.mark.parametrize(("logger", "workers"), [(TextLogger, 0), (InteractiveLogger, 2)])
def test_loggers_metrics_schedule_early_stop_and_workers_work_together(logger, workers, capsys):
    file = io.StringIO()
    own = TextLogger(file) if logger is TextLogger else InteractiveLogger()
    metrics = (accuracy_metrics(epoch=True, experience=True, stream=True), loss_metrics(epoch=True))
    model = mlp()
    optimizer = AdamW(model.parameters(), lr=3e-3)
    rates = []
    plugins = [
        LRSchedulerPlugin(CosineAnnealingLR(optimizer, 2)),
        EarlyStoppingPlugin(patience=5, val_stream_name="test_stream"),
        At("before_training_epoch", lambda s: rates.append(s.optimizer.param_groups[0]["lr"])),
    ]
    benchmark = benchmark_of()
    strategy = hfc(
        model,
        optimizer=optimizer,
        plugins=plugins,
        evaluator=EvaluationPlugin(*metrics, loggers=[own]),
        eval_every=1,
    )
    train(
        strategy,
        benchmark.train_stream[:2],
        eval_streams=[benchmark.test_stream[:1]],
        num_workers=workers,
    )
    text = file.getvalue() if logger is TextLogger else capsys.readouterr().out
    assert (
        text.count("Top1_Acc_Epoch/train_phase") == 4
        and "Top1_Acc_Stream/eval_phase/test_stream" in text
    )
    assert rates == pytest.approx([3e-3, 1.5e-3, 3e-3, 1.5e-3])


def test_workers_load_the_batches_that_the_main_process_loads():
    def final(workers):
        return left_by(
            run(experiences=benchmark_of().train_stream[:2], train_options={"num_workers": workers})
        )

    assert differing(final(0), final(2)) == []


@pytest.mark.parametrize("model", [lambda: mlp("growing", width=64), vit], ids=["mlp", "vit"])
def test_it_learns_inside_one_lasting_bf16_autocast(model):
    """Autocast keeps casts of the weights until its block ends: they must not outlive an update or
    an evaluation.
    """
    benchmark = benchmark_of(per_class=30)
    images, labels = test_images(benchmark)
    torch.manual_seed(0)
    strategy = hfc(model(), mem_size=60, train_mb_size=16, train_epochs=6)
    with torch.autocast("cpu", torch.bfloat16):
        for experience in benchmark.train_stream:
            strategy.train(experience)
            strategy.eval(benchmark.test_stream)
            assert all(np.isfinite(value) for value in strategy.losses.means.values())
    strategy.model.eval()
    assert (strategy.model(images).argmax(1) == labels).float().mean() > 0.5


def test_inside_a_lasting_autocast_the_cache_of_weights_changes_nothing():
    def final(cached):
        benchmark = benchmark_of(per_class=30)
        torch.manual_seed(0)
        model = vit()
        strategy = hfc(
            model, optimizer=AdamW(model.parameters(), lr=0.02), train_mb_size=30, train_epochs=1
        )
        with torch.autocast("cpu", torch.bfloat16, cache_enabled=cached):
            for experience in benchmark.train_stream:
                strategy.train(experience)
                strategy.eval(benchmark.test_stream)
        return left_by(strategy)

    assert differing(final(cached=True), final(cached=False)) == []


def test_after_an_update_the_model_speaks_with_its_new_weights_inside_autocast():
    met = []

    @torch.no_grad()
    def look(strategy):
        first = strategy.model(strategy.mb_x)
        torch.clear_autocast_cache()
        met.append(torch.equal(first, strategy.model(strategy.mb_x)))

    with torch.autocast("cpu", torch.bfloat16):
        run(experiences=benchmark_of().train_stream[:1], plugins=[At("after_update", look)])
    assert met == [True] * 4


def split(kind):
    """A benchmark of six digits, and the classes of its steps as labels."""
    train_data, test_data = (data_of(*digit_tensors(6, 6, skip)) for skip in (0, 60))
    options = dict(task_labels=False, shuffle=False, fixed_class_order=ORDER)
    if kind == "original ids":
        return nc_benchmark(train_data, test_data, n_experiences=3, **options), [
            {4, 1},
            {5, 0},
            {2, 3},
        ]
    if kind == "ids by arrival":
        benchmark = nc_benchmark(
            train_data,
            test_data,
            n_experiences=3,
            class_ids_from_zero_from_first_exp=True,
            **options,
        )
        return benchmark, [{0, 1}, {2, 3}, {4, 5}]
    if kind == "unequal steps":
        return nc_benchmark(
            train_data, test_data, n_experiences=3, per_exp_classes={0: 3, 1: 1}, **options
        ), [{4, 1, 5}, {0}, {2, 3}]
    order = {"train": train_data, "test": test_data}
    return class_incremental_benchmark(order, class_order=ORDER, num_experiences=3), [
        {4, 1},
        {5, 0},
        {2, 3},
    ]


@pytest.mark.parametrize("head", ["incremental", "growing", "fixed"])
@pytest.mark.parametrize(
    "kind", ["original ids", "ids by arrival", "unequal steps", "class_incremental_benchmark"]
)
def test_any_class_incremental_benchmark_of_avalanche_will_do(kind, head):
    benchmark, classes = split(kind)
    torch.manual_seed(0)
    strategy = hfc(mlp(head))
    for step, experience in enumerate(benchmark.streams["train"]):
        strategy.train(experience)
        table = StepTable.of(strategy)
        assert table.classes_of_step(step) == classes[step]
        assert set(herding_of(strategy).memory.classes) == set().union(*classes[: step + 1])
        strategy.eval(benchmark.streams["test"])
    fresh = hfc(mlp(head))
    state = strategy.state_dict()
    fresh.load_state_dict(state)
    assert differing(left_by(strategy), left_by(fresh)) == []


@pytest.mark.parametrize("form", ["default", "paper", "official"])
def test_after_three_steps_of_digits_it_knows_old_and_new_classes(form):
    benchmark = split_digits(num_steps=5, seed=0)
    torch.manual_seed(0)
    strategy = hfc(
        mlp("growing", width=64), form=form, mem_size=60, train_mb_size=32, train_epochs=6
    )
    train(strategy, benchmark.train_stream[:3])
    strategy.model.eval()
    for experience in benchmark.test_stream[:3]:
        images = torch.stack([x for x, *_ in experience.dataset.eval()])
        labels = torch.tensor([y for _, y, *_ in experience.dataset.eval()])
        assert (strategy.model(images).argmax(1) == labels).float().mean() > 0.4  # chance: 1/6


class TurnsNaN(nn.Module):
    """Multiplies by 1, or by NaN once `broken`."""

    def __init__(self):
        super().__init__()
        self.broken = False

    def forward(self, x):
        return x * float("nan") if self.broken else x


@pytest.mark.parametrize(
    ("form", "terms"),
    [("default", "criterion nan, compensation nan, relation nan"), ("official", "criterion nan")],
)
def test_a_nan_stops_the_training_with_step_epoch_and_terms_and_leaves_what_was_done(form, terms):
    benchmark = benchmark_of()

    def build(breaks):
        net = nn.Sequential(TurnsNaN(), mlp("growing"))

        def maybe(strategy):
            net[0].broken = breaks and (
                strategy.clock.train_exp_counter,
                strategy.clock.train_exp_epochs,
            ) == (1, 1)

        return hfc(net, form=form, train_epochs=3, plugins=[At("before_training_epoch", maybe)])

    torch.manual_seed(0)
    strategy = train(build(breaks=True), benchmark.train_stream[:1])
    state, exemplars = strategy.state_dict(), herding_of(strategy).memory.positions()
    with pytest.raises(
        FloatingPointError,
        match=rf"in step 1, epoch 1 \(counted from 0\). First such batch: total nan, {terms}",
    ):
        strategy.train(benchmark.train_stream[1])
    assert torch.equal(herding_of(strategy).memory.positions(), exemplars)

    healthy = build(breaks=False)
    healthy.load_state_dict(state)
    train(healthy, benchmark.train_stream[1:])
    strategy.model[0].broken = False
    strategy.plugins[0] = At("before_training_epoch", lambda strategy: None)
    strategy.load_state_dict(state)
    train(strategy, benchmark.train_stream[1:])
    assert differing(left_by(healthy), left_by(strategy)) == []
    assert all(torch.isfinite(value).all() for value in left_by(strategy).values())


def test_an_infinite_loss_names_the_first_batch_that_has_it():
    losses = EpochLosses()
    for total, term in [(1.0, 2.0), (float("inf"), 3.0), (float("nan"), 4.0)]:
        losses.add(torch.tensor([total]), {"criterion": torch.tensor(term)})
    with pytest.raises(FloatingPointError, match="step 4, epoch 7 .* total inf, criterion 3"):
        losses.finish(step=4, epoch=7)
    losses.start()
    for value in (1.0, 2.0, 6.0):
        losses.add(torch.tensor([value]), {"criterion": torch.tensor(2 * value)})
    losses.finish(step=0, epoch=0)
    assert losses.means == {"total": 3.0, "criterion": 6.0}


@pytest.mark.parametrize("form", ["default", "official"])
def test_a_frozen_prefix_is_computed_once_per_batch_and_gives_the_bits_of_computing_it_twice(
    form,
):
    benchmark = benchmark_of()

    def trained(shared):
        calls, batches = [], []
        model = vit(msa_blocks=2, frozen_blocks=1, drop_path=0.2)
        if not shared:
            model.shares_prefix = False  # student and teacher then compute their own
        count = At(
            "before_forward", lambda s: batches.append(1) if s.clock.train_exp_counter else None
        )
        strategy = hfc(model, form=form, plugins=[count])
        strategy.train(benchmark.train_stream[0])
        for net in (model, strategy.frozen_teacher.model):
            in_epoch = lambda *_: calls.append(1) if strategy.progress.event is None else None  # noqa: E731  # not those of herding
            net.backbone.blocks[0].register_forward_hook(in_epoch)
        strategy.train(benchmark.train_stream[1])
        return left_by(strategy), len(calls), len(batches)

    torch.manual_seed(2)
    once, calls_once, batches = trained(shared=True)
    torch.manual_seed(2)
    twice, calls_twice, _ = trained(shared=False)
    assert (calls_once, calls_twice) == (batches, 2 * batches)
    assert differing(once, twice) == []
