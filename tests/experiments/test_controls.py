"""The controls of L_RD change what they are named after, against loops over classes."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from avalanche_hfc.losses import cross_entropy, relation_targets

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
STEPS = torch.tensor([0, 0, 1, 1, 1, -1])  # 0 and 1 are old; 4 is new and not in the batch
TARGETS = torch.tensor([2, 2, 2, 0, 3, 2, 1, 0])


@pytest.fixture
def controls(monkeypatch):
    monkeypatch.syspath_prepend(str(EXPERIMENTS))
    import controls

    return controls


@pytest.fixture
def batch():
    logits, teacher = torch.randn(8, 6).double(), torch.randn(8, 2).double()
    return logits, teacher, torch.rand(8).double() + 0.5


def relation(cls, logits, teacher, weights):
    """L_RD of a control, without the rest of a strategy."""
    own = cls.__new__(cls)
    own.teacher_logits = lambda: teacher
    return own.relation(logits, TARGETS, STEPS, weights)


def divergences(logits, relation):
    """KL of the prototypes of each class in the batch: targets, then predictions."""
    p = logits[:, STEPS >= 0].softmax(1)
    y = relation[:, STEPS >= 0]
    found = {}
    for k in range(4):
        mean_y, mean_p = y[TARGETS.eq(k)].mean(0), p[TARGETS.eq(k)].mean(0)
        found[k] = sum(
            a * torch.log(a / q) for a, q in zip(mean_y, mean_p, strict=True) if float(a) > 0
        )
    return found


def class_weight(weights, k):
    return weights[TARGETS.eq(k)].mean()


def test_a_mean_over_samples_counts_a_class_as_often_as_it_is_there(controls, batch):
    logits, teacher, weights = batch
    found = divergences(logits, relation_targets(TARGETS, teacher, STEPS, normalise=True))
    expected = sum(class_weight(weights, int(k)) * found[int(k)] for k in TARGETS) / 8
    torch.testing.assert_close(relation(controls.SampleMean, *batch), expected)
    assert not torch.isclose(relation(controls.Baseline, *batch), expected)


def test_towards_the_labels_no_teacher_is_asked(controls, batch):
    logits, _, weights = batch
    one_hot = torch.nn.functional.one_hot(TARGETS, 6).double()
    found = divergences(logits, one_hot)
    expected = sum(class_weight(weights, k) * found[k] for k in range(4)) / 4
    torch.testing.assert_close(relation(controls.Labels, logits, None, weights), expected)


def test_the_cross_entropy_is_a_mean_over_classes_from_the_second_step_on(controls, batch):
    logits, _, _ = batch
    losses = cross_entropy(logits, TARGETS, STEPS)
    by_class = torch.stack([losses[TARGETS.eq(k)].mean() for k in range(4)]).mean()
    classify = controls.ClassMean.classification
    later, first = SimpleNamespace(num_old=2), SimpleNamespace(num_old=0)
    torch.testing.assert_close(classify(later, logits, TARGETS, STEPS).mean(), by_class)
    torch.testing.assert_close(classify(first, logits, TARGETS, STEPS), losses)


def test_a_control_has_the_network_and_the_values_of_hfc(controls, tmp_path):
    import tune
    import variants

    trials = [trial for trial in variants.VARIANTS.values() if ":" in trial.row]
    assert len(trials) == 5
    for trial in trials:
        own = tune.run_of(trial, 0, tmp_path, {}).recipe.leaves()
        like = tune.run_of(tune.Trial("baseline+tsa", trial.values), 0, tmp_path, {})
        assert own == like.recipe.leaves() | {"method.name": trial.row}
