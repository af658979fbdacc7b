import torch
from avalanche.models import IncrementalClassifier
from avalanche.training.supervised import Replay

from avalanche_hfc import GFCPlugin, GRDPlugin
from avalanche_hfc.benchmarks import split_digits

benchmark = split_digits(num_steps=5)
model = torch.nn.Sequential(
    torch.nn.Flatten(), torch.nn.Linear(64, 64), torch.nn.ReLU(), IncrementalClassifier(64)
)
strategy = Replay(
    model=model,
    optimizer=torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9),
    criterion=torch.nn.CrossEntropyLoss(),
    mem_size=20,
    train_mb_size=32,
    plugins=[GFCPlugin(), GRDPlugin()],
)
for experience in benchmark.train_stream:
    strategy.train(experience)
