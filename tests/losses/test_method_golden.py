"""The losses of the compared methods: numbers worked out apart from the code, for one sample of a
new class and one of an old.
"""

import math

import pytest
import torch

from avalanche_hfc.losses import (
    binary_cross_entropy,
    class_weights,
    cross_entropy,
    divergence_per_column,
    divided_cross_entropy,
    divided_gradient,
    knowledge_distillation,
    mixed_binary_cross_entropy,
    nca,
    separated_cross_entropy,
    separated_distillation,
    separated_gradient,
    sigmoid_gradient,
    step_factor,
    target_gradient,
)


def double(*values):
    return torch.tensor(values, dtype=torch.float64)


Z, TEACHER = double([2, 1, 0.5, -1], [2, 1, 0.5, -1]), double([0, 1], [0, 1])
Y, STEPS, W = torch.tensor([2, 0]), torch.tensor([0, 0, 1, 1]), double(1.2, 1.2, 0.8, 0.8)


def golden(found, *expected):
    assert [round(v, 5) for v in found.flatten().tolist()] == list(expected)


def test_golden_classification_of_each_sample():
    golden(cross_entropy(Z, Y, STEPS), 1.99518, 0.49518)
    golden(separated_cross_entropy(Z, Y, STEPS), 0.20141, 0.31326)
    golden(binary_cross_entropy(Z, Y, STEPS), 1.05688, 0.68188)
    golden(mixed_binary_cross_entropy(Z, Y, TEACHER, STEPS), 0.62412, 0.74912)
    golden(divided_cross_entropy(Z, Y, STEPS, W), 1.65229, 0.61062)
    golden(nca(Z, Y, STEPS), 2.38280, 0.49518)
    golden(nca(Z, Y, STEPS, form="paper"), 2.44901, 0.15496)


def test_golden_gradients_of_the_target():
    golden(target_gradient(Z, Y), 0.86401, 0.39054)
    golden(sigmoid_gradient(Z, Y), 0.37754, 0.11920)
    golden(separated_gradient(Z, Y, STEPS), 0.18243, 0.26894)
    golden(divided_gradient(Z, Y, STEPS, W), 0.80839, 0.45699)


def test_golden_distillation_and_sums_of_the_hosts():
    golden(knowledge_distillation(Z, TEACHER, STEPS), 0.78531)
    golden(2 * divergence_per_column(Z, TEACHER, STEPS), 0.46212)
    golden(2 * divergence_per_column(Z, TEACHER, STEPS, temperature=2.0) / 4, 0.12246)
    golden(
        separated_cross_entropy(Z, Y, STEPS) + separated_distillation(Z, TEACHER, STEPS),
        0.69125,
        0.80310,
    )
    golden(
        0.5 * cross_entropy(Z, Y, STEPS) + knowledge_distillation(Z, TEACHER, STEPS, factor=0.5),
        1.39024,
        0.64024,
    )
    corrected = double([0, 0.5 * 1 - 0.5], [0, 0.5 * 1 - 0.5])
    factor = torch.tensor(0.5, dtype=torch.float64)
    golden(
        0.5 * cross_entropy(Z, Y, STEPS)
        + knowledge_distillation(Z, corrected, STEPS, factor=factor),
        1.35963,
        0.60963,
    )
    golden(
        0.5 * binary_cross_entropy(Z, Y, STEPS) + 0.5 * divergence_per_column(Z, TEACHER, STEPS),
        0.64397,
        0.45647,
    )


def test_golden_class_weights_of_foster():
    counts, steps = torch.tensor([22] * 90 + [500] * 10), torch.tensor([0] * 90 + [1] * 10)
    golden(class_weights(counts, steps, beta=0.94)[[0, -1]], 1.02631, 0.76323)
    weights = class_weights(
        torch.tensor([200] * 10 + [500] * 10), torch.tensor([0] * 10 + [1] * 10), beta=0.98
    )
    assert [round(v, 2) for v in weights[[0, -1]].tolist()] == [1.01, 0.99]


def test_the_step_factor_is_the_root_of_seen_over_new():
    assert step_factor(torch.tensor([0, 0, -1, 3, 3, 5, -1, 0, 0, 0])).item() == pytest.approx(
        math.sqrt(8)
    )
    assert (
        step_factor(torch.tensor([2, -1, 2])) == 1
        and step_factor(torch.tensor([0, 1])).dtype == torch.float32
    )
    assert step_factor(torch.tensor([0, 1, 1]), torch.float64).dtype == torch.float64
