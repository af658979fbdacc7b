import sys

import torch
from avalanche.evaluation.metrics import accuracy_metrics
from avalanche.logging import TextLogger
from avalanche.models import SimpleMLP
from avalanche.training.plugins import EvaluationPlugin

from avalanche_hfc import HFCStrategy
from avalanche_hfc.benchmarks import split_digits
from avalanche_hfc.metrics import (
    average_incremental_accuracy_metrics,
    forgetting_heterogeneity_metrics,
    loss_terms_metrics,
)

torch.manual_seed(0)
benchmark = split_digits(n_experiences=5)
model = SimpleMLP(num_classes=benchmark.n_classes, input_size=64, hidden_size=64)
strategy = HFCStrategy(
    model=model,
    optimizer=torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9),
    mem_size=20,
    train_mb_size=32,
    train_epochs=5,
    evaluator=EvaluationPlugin(
        accuracy_metrics(stream=True),
        average_incremental_accuracy_metrics(),
        forgetting_heterogeneity_metrics(),
        loss_terms_metrics(),
        loggers=[TextLogger(sys.stdout)],
    ),
)
for experience in benchmark.train_stream:
    strategy.train(experience)
    strategy.eval(benchmark.test_stream)
