import torch

from avalanche_hfc import STRATEGIES
from avalanche_hfc.benchmarks import split_digits
from avalanche_hfc.models import ResNet32

benchmark = split_digits(num_steps=5)
model = ResNet32(in_channels=1, last_relu=False, block_relu=False)
PODNet = STRATEGIES["podnet"]
strategy = PODNet(
    model=model,
    optimizer=torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9),
    losses="hfc",  # "host": the method's own; "gfc", "grd": one of the two
    mem_size=20,
    train_mb_size=64,
    tune_epochs=2,
)
for experience in benchmark.train_stream[:2]:
    strategy.train(experience)
