"""FOSTER's class weights: those of every step of every protocol of CIFAR-100, with the β published
for it.
"""

from types import SimpleNamespace

import pytest
import torch
from method_runs import build, steps_of
from strategy_runs import At

from avalanche_hfc.lab import recipe
from avalanche_hfc.models import BoostedHead
from avalanche_hfc.plugins.steps import StepTable
from avalanche_hfc.strategies.foster import FOSTER

NEW = 500  # images of a class
PROTOCOLS = [(0, 5), (0, 10), (0, 20), (0, 25), (0, 50), (50, 5), (50, 10), (50, 25), (50, 50)]
BETAS = {  # as the configurations have them, and our own at B0 for T = 25 and 50
    (0, 5): [0.97, 0.96, 0.95, 0.94],
    (0, 10): [0.98, 0.975, 0.97, 0.965, 0.96, 0.955, 0.95, 0.945, 0.94],
    (50, 5): [0.94] * 5,
    (50, 10): [0.94] * 10,
    (50, 25): [0.95] * 25,
    (50, 50): [0.95] * 50,
    **{(0, num_steps): [0.96] * (num_steps - 1) for num_steps in (20, 25, 50)},
}


def class_sizes(base, num_steps):
    """How many classes each step brings."""
    return [100 // num_steps] * num_steps if base == 0 else [50] + [50 // num_steps] * num_steps


def weights_by_loop(num_old, num_new, num_exemplars, beta):
    """(w_old, w_new): the inverse of the effective number of images, scaled so that the weights of
    all classes sum to their number.
    """
    inverse = []
    for count in [num_exemplars] * num_old + [NEW] * num_new:
        effective = sum(beta**image for image in range(count))
        inverse.append(1 / effective)
    scaled = [value / sum(inverse) * len(inverse) for value in inverse]
    return scaled[0], scaled[-1]


def weights_of(beta, compress_beta, sizes, step, num_exemplars):
    """What the strategy takes for w in both phases of a step of such a benchmark."""
    strategy = FOSTER.__new__(FOSTER)
    strategy.beta, strategy.compress_beta, strategy._weights = beta, compress_beta, {}
    strategy.model = SimpleNamespace(head=BoostedHead(1))
    class_steps = [number for number, size in enumerate(sizes[: step + 1]) for _ in range(size)]
    StepTable.of(strategy).load_state_dict(
        {"classes": list(range(len(class_steps))), "steps": class_steps}
    )
    counts = [NEW if own == step else num_exemplars for own in class_steps]
    strategy.adapted_dataset = SimpleNamespace(
        targets=[c for c, count in enumerate(counts) for _ in range(count)]
    )
    steps = torch.tensor(class_steps)
    return [
        strategy.class_weights(steps, values) for values in (strategy.beta, strategy.compress_beta)
    ]


@pytest.mark.parametrize("memory", ["2000 in total", "20 of each"])
@pytest.mark.parametrize(("base", "num_steps"), PROTOCOLS)
def test_the_weights_of_every_step_of_every_protocol(base, num_steps, memory):
    options = dict(recipe(f"cifar100-b{base}-t{num_steps}-foster@paper").method.options)
    second = 0.98 if (base, num_steps) == (50, 50) else 0.97
    sizes = class_sizes(base, num_steps)
    for step in range(1, len(sizes)):
        num_old = sum(sizes[:step])
        num_exemplars = 2000 // num_old if memory == "2000 in total" else 20
        found = weights_of(options["beta"], options["compress_beta"], sizes, step, num_exemplars)
        for weights, beta in zip(found, (BETAS[base, num_steps][step - 1], second), strict=True):
            old, new = weights_by_loop(num_old, sizes[step], num_exemplars, beta)
            expected = torch.tensor([old] * num_old + [new] * sizes[step])
            torch.testing.assert_close(weights, expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize(("num_steps", "ratio", "of_the_mean"), [(5, 1.27, 1.46), (10, 1.34, 1.69)])
def test_late_steps_are_corrected_less_than_by_the_mean_of_the_values(
    num_steps, ratio, of_the_mean
):
    options, sizes = (
        dict(recipe(f"cifar100-b0-t{num_steps}-foster@paper").method.options),
        class_sizes(0, num_steps),
    )
    num_exemplars = 2000 // sum(sizes[:-1])
    last, _ = weights_of(options["beta"], 0.97, sizes, num_steps - 1, num_exemplars)
    assert (last[0] / last[-1]).item() == pytest.approx(ratio, abs=0.005)
    mean, _ = weights_of(
        sum(options["beta"]) / len(options["beta"]), 0.97, sizes, num_steps - 1, num_exemplars
    )
    assert (mean[0] / mean[-1]).item() == pytest.approx(of_the_mean, abs=0.005)


def test_a_run_takes_the_value_of_its_step_in_both_phases():
    used = []
    strategy = build(
        "foster", train_epochs=1, compress_epochs=1, beta=[0.9, 0.5], compress_beta=(0.8, 0.3, 0.1)
    )
    look = At(
        "after_phase_epoch", lambda s: used.append((StepTable.of(s).current, sorted(s._weights)))
    )
    strategy.plugins.append(look)
    steps_of(strategy, 3)
    assert used == [(1, [0.8, 0.9]), (2, [0.3, 0.5])]
    assert (strategy.beta, strategy.compress_beta) == ((0.9, 0.5), (0.8, 0.3, 0.1))


def test_the_last_value_serves_the_steps_that_follow():
    used = []
    look = At(
        "after_phase_epoch", lambda s: used.append((StepTable.of(s).current, sorted(s._weights)))
    )
    steps_of(
        build(
            "foster",
            train_epochs=1,
            compress_epochs=1,
            beta=[0.9],
            compress_beta=0.8,
            plugins=[look],
        ),
        3,
    )
    assert used == [(1, [0.8, 0.9]), (2, [0.8, 0.9])]
