"""Evaluating, future classes included, changes nothing that is trained."""

from itertools import pairwise

import pytest
import torch
from avalanche.evaluation.metrics import accuracy_metrics
from avalanche.training.plugins import EvaluationPlugin
from strategy_runs import At, benchmark_of, hfc, mlp, run, train, vit

MODELS = {
    "incremental": lambda: mlp(dropout=0.3),
    "growing": lambda: mlp("growing", dropout=0.3),
    "fixed": lambda: mlp("fixed", dropout=0.3),
    "vit": lambda: vit(drop_path=0.3),
    "vit with a frozen prefix": lambda: vit(msa_blocks=2, frozen_blocks=1, drop_path=0.3),
}


def evaluate_in(event, stream):
    """A plugin that evaluates the stream at the second iteration of each epoch."""
    return At(
        event,
        lambda strategy: (
            strategy.eval(stream) if strategy.clock.train_epoch_iterations == 1 else None
        ),
    )


@pytest.mark.parametrize("name", MODELS)
def test_after_an_evaluation_of_future_classes_the_optimizer_still_moves_the_head(name):
    benchmark, heads = benchmark_of(), []

    def look(strategy):
        heads.append([p.detach().clone() for p in list(strategy.model.parameters())[-2:]])

    plugins = [
        evaluate_in("after_training_iteration", benchmark.test_stream),
        At("after_update", look),
    ]
    run(
        MODELS[name],
        experiences=benchmark.train_stream[:1],
        plugins=plugins,
        train_epochs=1,
        train_mb_size=3,
    )
    assert len(heads) == 4
    for before, after in pairwise(heads):
        assert not any(torch.equal(old, new) for old, new in zip(before, after, strict=True))


def test_the_batch_its_output_and_the_loss_are_there_after_periodic_evaluation():
    met = []

    def look(strategy):
        expected = strategy._criterion(strategy.mb_output, strategy.mb_y)
        met.append(
            (
                len(strategy.mb_x),
                len(strategy.mb_y),
                strategy.mb_output.shape,
                torch.equal(strategy.loss[0], expected),
            )
        )

    benchmark = benchmark_of()
    strategy = hfc(mlp(), eval_every=1, train_epochs=1)
    strategy.plugins.append(
        At(["after_training_epoch", "after_training_exp"], look)
    )  # behind the periodic evaluation
    strategy.train(benchmark.train_stream[0], eval_streams=[benchmark.test_stream])
    assert met == [(4, 4, torch.Size([4, 5]), True)] * 2


def test_unseen_columns_are_minus_1000_up_to_the_largest_label_met():
    benchmark, outputs = benchmark_of(), []
    for head in ("incremental", "growing", "fixed"):
        watch = At(
            "after_eval_forward", lambda strategy: outputs.append(strategy.mb_output.clone())
        )
        strategy = run(
            lambda head=head: mlp(head), experiences=benchmark.train_stream[:1], plugins=[watch]
        )
        strategy.eval(benchmark.test_stream[1])  # classes 0 and 5
        logits = outputs[-1]
        assert logits.shape == (12, 6), head
        assert (logits[:, [0, 2, 3, 5]] == -1000).all() and (logits[:, [1, 4]] > -1000).all(), head
        strategy.eval(benchmark.test_stream[0])
        assert outputs[-1].shape[1] == (6 if head == "fixed" else 5), head


def test_the_model_does_not_grow_and_modes_are_as_before():
    benchmark = benchmark_of()
    strategy = run(
        lambda: vit(msa_blocks=2, frozen_blocks=1), experiences=benchmark.train_stream[:1]
    )
    strategy.model.train()
    modes = [module.training for module in strategy.model.modules()]
    parameters = [id(p) for p in strategy.model.parameters()]
    strategy.eval(benchmark.test_stream)
    assert [module.training for module in strategy.model.modules()] == modes
    assert [id(p) for p in strategy.model.parameters()] == parameters
    assert strategy.model.head.out_features == 5


def test_the_accuracy_of_the_evaluator_is_that_of_a_plain_loop():
    benchmark = benchmark_of(per_class=20)
    evaluator = EvaluationPlugin(accuracy_metrics(experience=True, stream=True), loggers=[])
    torch.manual_seed(0)
    strategy = train(hfc(mlp(), evaluator=evaluator, train_epochs=6), benchmark.train_stream[:2])
    metrics = strategy.eval(benchmark.test_stream)
    strategy.model.eval()
    right = 0
    for step, experience in enumerate(benchmark.test_stream):
        hits = [
            strategy.model(x[None])[0].argmax().item() == y
            for x, y, *_ in experience.dataset.eval()
        ]
        value = next(
            v
            for name, v in metrics.items()
            if name.startswith("Top1_Acc_Exp") and name.endswith(f"Exp{step:03}")
        )
        assert value == pytest.approx(sum(hits) / len(hits))
        right += sum(hits)
    stream = next(v for name, v in metrics.items() if name.startswith("Top1_Acc_Stream"))
    assert stream == pytest.approx(right / 120) and stream > 0.4
