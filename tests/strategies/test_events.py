"""What a plugin may see of a training: loss terms, sample weights and batches of every phase, and
the seed of random draws.
"""

import pytest
import torch
from avalanche.training.plugins import EvaluationPlugin
from method_runs import build, steps_of
from strategy_runs import At, benchmark_of, jitter, train, vit

from avalanche_hfc.metrics import loss_terms_metrics
from avalanche_hfc.plugins.steps import StepTable
from avalanche_hfc.strategies import HFCStrategy


def test_a_plugin_sees_every_batch_of_a_later_phase_with_its_terms():
    seen, counts = [], []
    plugins = [
        At("before_phase_iteration", lambda s: seen.append([len(s.phase_running.batch[1])])),
        At("after_phase_iteration", lambda s: seen[-1].append(dict(s.loss_terms))),
        At(
            ["before_phase_epoch", "after_phase_epoch"],
            lambda s: counts.append(s.clock.train_iterations),
        ),
    ]
    strategy = steps_of(build("podnet", plugins=plugins, tune_epochs=2), 2)
    assert [size for size, _ in seen] == [12] * 2  # 12 exemplars: a batch an epoch
    assert all(set(terms) == {"classification"} for _, terms in seen)
    assert float(seen[-1][1]["classification"]) == pytest.approx(
        strategy.losses.means["classification"]
    )
    assert counts == [
        counts[0],
        counts[0] + 1,
        counts[0] + 1,
        counts[0] + 2,
    ]  # Avalanche's clock counts them
    assert strategy.loss_terms == {} and strategy.phase_running is None


@pytest.mark.parametrize("name", ["hfc", "herding-replay"])
def test_a_plugin_sees_the_weights_of_every_sample_in_one_place(name):
    seen = []
    look = At(
        "after_backward",
        lambda s: seen.append(
            (s.clock.train_exp_counter, StepTable.of(s).sample_weights, s.mb_y.clone(), s)
        ),
    )
    options = {"losses": "hfc"} if name != "hfc" else {}
    strategy = steps_of(build(name, plugins=[look], **options), 2)
    assert StepTable.of(strategy).sample_weights is None
    first = [weighed for step, weighed, _, _ in seen if step == 0]
    later = [(weighed, targets) for step, weighed, targets, _ in seen if step == 1]
    assert set(first) == {None} and later
    table = StepTable.of(strategy)
    for weighed, targets in later:
        assert weighed.steps.tolist() == [table.step_of[int(target)] for target in targets]
        for step in set(weighed.steps.tolist()):
            assert weighed.weights[weighed.steps == step].mean().item() == pytest.approx(
                1, rel=1e-5
            )


def test_loss_terms_are_metrics_of_avalanche_in_every_phase():
    evaluator = EvaluationPlugin(loss_terms_metrics(), loggers=[], collect_all=True)
    totals = []
    look = At(
        ["after_training_epoch", "after_phase_epoch"],
        lambda s: totals.append((s.phase, dict(s.losses.means))),
    )
    steps_of(build("podnet", plugins=[look], evaluator=evaluator, tune_epochs=1), 2)
    logged = {name: values for name, (_, values) in evaluator.all_metric_results.items()}
    for phase in ("train", "tune"):
        epochs = [means for own, means in totals if own == phase]
        for term in {name for means in epochs for name in means}:
            expected = [means[term] for means in epochs if term in means]
            assert logged[f"Loss_Term_{term}/{phase}_phase"] == pytest.approx(expected, rel=1e-6)
    assert (
        "Loss_Term_pod_spatial/train_phase" in logged
        and "Loss_Term_pod_spatial/tune_phase" not in logged
    )


def images_drawn(draw_seed, torch_seed):
    """The first batch of each epoch of a step, as seen, sorted: the order is not the
    transform's.
    """
    seen = []
    model = vit()
    strategy = HFCStrategy(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.0),
        mem_size=12,
        train_mb_size=1000,
        train_epochs=2,
        plugins=[
            At("after_forward", lambda s: seen.append(s.mb_x.flatten(1).sum(1).sort().values))
        ],
        evaluator=None,
    )
    strategy.draw_seed = draw_seed
    torch.manual_seed(torch_seed)
    train(strategy, benchmark_of(train_transform=jitter).train_stream[:1])
    return seen


def test_a_seed_makes_random_transforms_follow_from_step_epoch_and_position_alone():
    first, second = images_drawn(3, 0), images_drawn(3, 1)
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))
    assert not torch.equal(first[0], first[1])  # another epoch
    assert not torch.equal(first[0], images_drawn(4, 0)[0])
    assert not torch.equal(images_drawn(None, 0)[0], images_drawn(None, 1)[0])
