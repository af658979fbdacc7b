import pytest
import torch
from avalanche.benchmarks import nc_benchmark
from avalanche.benchmarks.utils import as_classification_dataset
from avalanche.evaluation.metrics import accuracy_metrics
from avalanche.training.plugins import EvaluationPlugin
from avalanche.training.supervised import Naive
from small_vits import small
from torch.utils.data import TensorDataset


def benchmark():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(6).repeat(8)
    data = [
        TensorDataset(
            torch.randn(48, 3, 8, 8, generator=generator) + labels[:, None, None, None], labels
        )
        for _ in range(2)
    ]
    train, test = (as_classification_dataset(_with_targets(part)) for part in data)
    return nc_benchmark(
        train, test, n_experiences=3, task_labels=False, fixed_class_order=[4, 1, 5, 0, 3, 2]
    )


def _with_targets(dataset):
    dataset.targets = dataset.tensors[1].tolist()
    return dataset


@pytest.mark.parametrize("groups", [1, 2])
def test_avalanche_trains_every_part_in_every_step_and_its_evaluation_changes_nothing(groups):
    def run(evaluate):
        model = small(frozen_blocks=1)
        rest = [p for name, p in model.named_parameters() if name.startswith("backbone.")]
        own = [p for name, p in model.named_parameters() if not name.startswith("backbone.")]
        optimizer = torch.optim.AdamW(
            [{"params": rest, "lr": 1e-3}, {"params": own, "lr": 5e-3}]
            if groups == 2
            else rest + own,
            lr=1e-3,
        )
        strategy = Naive(
            model=model,
            optimizer=optimizer,
            train_mb_size=8,
            evaluator=EvaluationPlugin(accuracy_metrics(stream=True)),
        )
        stream = benchmark()
        for step, step_experience in enumerate(stream.train_stream[:2]):
            old = {
                name: p.detach().clone()
                for name, p in model.named_parameters()
                if not name.startswith("head")
            }
            torch.manual_seed(step)
            strategy.train(step_experience)
            still = {
                name
                for name, p in model.named_parameters()
                if name in old and torch.equal(p, old[name])
            }
            assert still == {name for name, p in model.named_parameters() if not p.requires_grad}
            assert all(
                any(p is held for group in optimizer.param_groups for held in group["params"])
                for p in model.parameters()
            )
            assert model.head.seen.nonzero().flatten().tolist() == [[1, 4], [0, 1, 4, 5]][step]
            if evaluate:
                strategy.eval(stream.test_stream)  # classes of the last step are never trained
        return model

    with_evaluation, without = run(True), run(False)
    for (name, a), (_, b) in zip(
        with_evaluation.state_dict().items(), without.state_dict().items(), strict=True
    ):
        assert torch.equal(a, b), name
