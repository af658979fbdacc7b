import io
import itertools

import pytest
import torch
from avalanche.benchmarks import nc_benchmark
from avalanche.evaluation.metrics import accuracy_metrics
from avalanche.logging import TextLogger
from avalanche.models import IncrementalClassifier
from avalanche.training.plugins import EvaluationPlugin
from avalanche.training.supervised import JointTraining, Naive
from torch import nn
from torch.utils.data import ConcatDataset, TensorDataset

from avalanche_hfc.metrics import (
    average_incremental_accuracy,
    average_incremental_accuracy_metrics,
    evaluate,
    forgetting_heterogeneity_metrics,
    mean_forgetting_heterogeneity,
)
from avalanche_hfc.metrics.plugin_metrics import StepMetric

AVERAGE = "Average_Incremental_Acc/eval_phase/test_stream"
FH = "Forgetting_Heterogeneity/eval_phase/test_stream"
ORDER = [3, 5, 0, 1, 4, 2]


class Labelled(TensorDataset):
    @property
    def targets(self):
        return self.tensors[1].tolist()


def data(n_per_class, seed):
    generator = torch.Generator().manual_seed(seed)
    targets = torch.arange(6).repeat_interleave(
        torch.tensor([n_per_class + c for c in range(6)])
    )  # unequal classes
    return Labelled(
        torch.eye(6)[targets] + 0.7 * torch.randn(len(targets), 6, generator=generator), targets
    )


def bench():
    """Three steps of two classes, original class ids: [3, 5], [0, 1], [4, 2]; batches (x, y, t)."""
    return nc_benchmark(
        data(8, 0), data(5, 1), n_experiences=3, task_labels=False, fixed_class_order=ORDER
    )


def naive(head=None, loggers=(), strategy=Naive, **options):
    torch.manual_seed(0)
    head = head if head is not None else IncrementalClassifier(6, 2)
    model = nn.Sequential(nn.Linear(6, 6), head)
    evaluator = EvaluationPlugin(
        average_incremental_accuracy_metrics(),
        forgetting_heterogeneity_metrics(),
        accuracy_metrics(stream=True),
        loggers=[TextLogger(io.StringIO()), *loggers],
    )
    return strategy(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.3),
        criterion=nn.CrossEntropyLoss(),
        train_mb_size=8,
        train_epochs=2,
        eval_mb_size=7,
        evaluator=evaluator,
        **options,
    )


def steps_after(num_steps):
    steps = torch.full((6,), -1)
    for rank, class_id in enumerate(ORDER[: 2 * num_steps]):
        steps[class_id] = rank // 2
    return steps


def counted(strategy, test_stream, num_steps):
    """What `evaluate` counts on the seen part of the test stream."""
    return evaluate(
        strategy.model,
        ConcatDataset([e.dataset for e in itertools.islice(test_stream, num_steps)]),
        steps_after(num_steps),
    )


def expected(all_counts, num_steps):
    return {
        AVERAGE: pytest.approx(average_incremental_accuracy(all_counts), rel=1e-12),
        FH: pytest.approx(
            mean_forgetting_heterogeneity(all_counts, steps_after(num_steps)), rel=1e-6
        ),
    }


def ours(results):
    return {name: results[name] for name in (AVERAGE, FH)}


def whole(strategy, stream, num_steps):
    return strategy.eval(stream)


def seen_part(strategy, stream, num_steps):
    return strategy.eval(stream[:num_steps])


def several_times(strategy, stream, num_steps):
    strategy.eval(stream)
    strategy.eval(stream[:1])
    return strategy.eval(stream)


def one_at_a_time(strategy, stream, num_steps):
    return [strategy.eval([experience]) for experience in stream][-1]


def whole_then_a_part(strategy, stream, num_steps):
    strategy.eval(stream)
    return strategy.eval(stream[:1])


@pytest.mark.parametrize(
    "way",
    [whole, seen_part, several_times, one_at_a_time, whole_then_a_part],
    ids=lambda way: way.__name__,
)
@pytest.mark.parametrize(
    "head", [lambda: None, lambda: nn.Linear(6, 6)], ids=["masked head", "full head"]
)
def test_the_metrics_are_those_of_evaluate_however_the_stream_is_evaluated(way, head):
    benchmark, strategy, all_counts = bench(), naive(head()), []
    for step, experience in enumerate(benchmark.train_stream):
        strategy.train(experience)
        results = way(strategy, benchmark.test_stream, step + 1)
        all_counts.append(counted(strategy, benchmark.test_stream, step + 1))
        assert ours(results) == expected(all_counts, step + 1)
    assert 0.2 < results[AVERAGE] < 0.95 and results[FH] > 0.001  # neither trivial


def test_the_last_evaluation_of_a_step_counts():
    benchmark, strategy, all_counts = bench(), naive(), []
    for step, experience in enumerate(benchmark.train_stream):
        strategy.train(experience)
        strategy.eval(benchmark.test_stream)
        strategy.train(experience)  # the same step, trained on
        results = strategy.eval(benchmark.test_stream)
        all_counts.append(counted(strategy, benchmark.test_stream, step + 1))
        assert ours(results) == expected(all_counts, step + 1)


@pytest.mark.parametrize("eval_every", [0, 1])
def test_evaluations_inside_training_count_and_the_one_before_it_does_not(eval_every):
    """Steps are evaluated by `eval_every` alone. The evaluation before step 2 sees a head already
    moved by the user: it must not count.
    """
    benchmark, strategy, all_counts = bench(), naive(eval_every=eval_every), []
    for step, experience in enumerate(benchmark.train_stream):
        results = strategy.train(experience, eval_streams=[benchmark.test_stream])
        all_counts.append(counted(strategy, benchmark.test_stream, step + 1))
        assert ours(results) == expected(all_counts, step + 1)
        with torch.no_grad():
            strategy.model[1].classifier.weight.neg_()


def test_joint_training_has_seen_all_classes_of_its_list():
    benchmark, strategy = bench(), naive(nn.Linear(6, 6), strategy=JointTraining)
    strategy.train(benchmark.train_stream)
    results = strategy.eval(benchmark.test_stream)
    counts = evaluate(strategy.model, data(5, 1), torch.zeros(6, dtype=torch.int64))
    assert results[AVERAGE] == pytest.approx(average_incremental_accuracy([counts]))


def test_a_metric_of_one_s_own_is_given_the_counts_and_the_step_of_each_class():
    class Record(StepMetric):
        name = "Record"

        def number(self, counts, steps):
            given.append((len(counts), steps.tolist()))
            return 0.5

    given, benchmark, strategy, metric = [], bench(), naive(), Record()
    strategy.evaluator.metrics.append(metric)
    for experience in benchmark.train_stream[:2]:
        strategy.train(experience)
        assert strategy.eval(benchmark.test_stream)["Record/eval_phase/test_stream"] == 0.5
    assert given == [(1, [-1, -1, -1, 0, -1, 0]), (2, [1, 1, -1, 0, -1, 0])]
    assert str(metric) == "Record"
    with pytest.raises(TypeError, match="abstract"):
        StepMetric()
