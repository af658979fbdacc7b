"""BiC: scheduler, distillation, modes, data.

A test named `shipped_…` fails when Avalanche mends the defect: then the repair can go.
"""

import math
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from avalanche.training.plugins import BiCPlugin
from avalanche.training.supervised import BiC
from compat_hosts import STEPS, Recorder, network, strategy_of, train
from torch.utils.data import DataLoader

from avalanche_hfc import compat


def test_shipped_bic_distils_over_the_batch_at_a_temperature_of_two():
    torch.manual_seed(0)
    new, old = torch.randn(5, 3), torch.randn(5, 3)
    over_batch = -((old / 2).softmax(0) * (new / 2).log_softmax(1)).sum(1).mean()
    for temperature in (2, 5):
        assert BiCPlugin(T=temperature).cross_entropy(new, old).item() == pytest.approx(
            over_batch.item(), rel=1e-6
        )
    assert compat.RepairedBiCPlugin(T=2).cross_entropy(new, old).item() != pytest.approx(
        over_batch.item(), rel=1e-2
    )


def test_shipped_bic_replaces_the_data_of_the_experience(benchmark):
    experience = benchmark.train_stream[0]
    train(strategy_of(BiC, network()), [experience])
    assert len(experience.dataset) == 108


@pytest.mark.parametrize(
    ("lamb", "own", "distilled"), [(-1, 1 / 3, 2 / 3), (0.7, 1.0, 0.7)], ids=["balanced", "given"]
)
def test_bic_loss_distils_over_the_old_columns_at_its_temperature(benchmark, lamb, own, distilled):
    old_columns, corrected = [0, 1, 3, 5], STEPS[1]

    def by_hand(strategy):
        logits, targets = strategy.mb_output.detach().double(), strategy.mb_y.tolist()
        with torch.no_grad():
            teacher = bic.model_old(strategy.mb_x).double()
        for c in corrected:
            teacher[:, c] = alpha * teacher[:, c] + beta
        classification, distillation = 0.0, 0.0
        for i, target in enumerate(targets):
            classification -= logits[i].log_softmax(0)[target].item() / len(targets)
            z = sum(math.exp(logits[i, c] / 3) for c in old_columns)
            z_teacher = sum(math.exp(teacher[i, c] / 3) for c in old_columns)
            for c in old_columns:
                distillation -= (
                    math.exp(teacher[i, c] / 3)
                    / z_teacher
                    * math.log(math.exp(logits[i, c] / 3) / z)
                    / len(targets)
                )
        return strategy.loss.item(), own * classification + distilled * distillation

    strategy = strategy_of(compat.RepairedBiC, network(), T=3, lamb=lamb)
    (bic,) = [plugin for plugin in strategy.plugins if isinstance(plugin, BiCPlugin)]
    recorder = Recorder(by_hand)
    strategy.plugins.insert(strategy.plugins.index(bic) + 1, recorder)
    train(strategy, benchmark.train_stream[:2])
    alpha, beta = bic.bias_layer.alpha.item(), bic.bias_layer.beta.item()
    assert alpha != 1 and beta != 0 and bic.bias_layer.clss.tolist() == sorted(corrected)
    strategy.train(benchmark.train_stream[2])
    assert len(recorder.seen) > 4
    for loss, expected in recorder.seen:
        assert loss == pytest.approx(expected, rel=1e-5)


def test_bic_bias_step_fits_alpha_and_beta_as_a_plain_loop_does_and_keeps_every_module_mode(
    benchmark,
):
    data = benchmark.train_stream[0].dataset
    model = network("fixed", norm=True).train()
    model[0][1].eval()  # frozen statistics, inside a model that trains
    plugin = compat.RepairedBiCPlugin(stage_2_epochs=60, lr=0.1)
    plugin.val_buffer = {
        3: SimpleNamespace(buffer=data.subset(range(10))),
        1: SimpleNamespace(buffer=data.subset(range(70, 80))),
    }
    modes = [module.training for module in model.modules()]
    torch.manual_seed(3)
    plugin.bias_correction_step(
        SimpleNamespace(
            model=model, adapted_dataset=data.subset(range(60)), device="cpu", train_mb_size=7
        )
    )
    assert (
        [module.training for module in model.modules()] == modes
        and True in modes
        and False in modes
    )

    (bias,) = {int(target) for target in data.subset(range(60)).targets}
    alpha, beta = torch.ones(1, requires_grad=True), torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([alpha, beta], lr=0.1, momentum=0.9)
    column = F.one_hot(torch.tensor(bias), 6).bool()
    model.eval()
    torch.manual_seed(3)
    loader = DataLoader(data.subset([*range(10), *range(70, 80)]), batch_size=7, shuffle=True)
    for epoch in range(60):
        optimizer.param_groups[0]["lr"] = 0.1 if epoch < 50 else 0.01
        for x, y, _ in loader:
            logits = model(x).detach()
            loss = (
                F.cross_entropy(torch.where(column, alpha * logits + beta, logits), y)
                + 0.1 * beta.sum() ** 2 / 2
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    torch.testing.assert_close(
        (plugin.bias_layer.alpha.data, plugin.bias_layer.beta.data), (alpha.data, beta.data)
    )
    assert abs(alpha.item() - 1) > 0.1


def test_bic_keeps_validation_and_memory_apart_and_the_experience_whole(benchmark):
    experiences = list(benchmark.train_stream)
    strategy = train(strategy_of(compat.RepairedBiC, network()), experiences)
    assert [len(experience.dataset) for experience in experiences] == [120, 120, 120]
    (bic,) = [plugin for plugin in strategy.plugins if isinstance(plugin, BiCPlugin)]
    held_out = {
        tuple(sample[0].tolist()) for buffer in bic.val_buffer.values() for sample in buffer.buffer
    }
    memory = {tuple(sample[0].tolist()) for sample in bic.storage_policy.buffer}
    assert len(held_out) == 12 and len(memory) == 60 and not held_out & memory
    assert all(module.training for module in strategy.model.modules())
