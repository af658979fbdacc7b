"""Train on several ranks: torchrun --standalone --nproc-per-node 2 examples/ranks.py."""

import torch
from avalanche.distributed import DistributedHelper
from avalanche.training.plugins import EvaluationPlugin

from avalanche_hfc import HFCStrategy, TSAViT
from avalanche_hfc.benchmarks import split_digits

DistributedHelper.init_distributed(random_seed=0)  # gloo on CPU, nccl on CUDA
device = DistributedHelper.make_device()

benchmark = split_digits(num_steps=5)
model = TSAViT(
    "vit_tiny_patch16_224",
    image_size=8,
    patch_size=4,
    msa_blocks=2,
    backbone_options=dict(embed_dim=64, num_heads=4, in_chans=1),
)
strategy = HFCStrategy(
    model=model,
    optimizer=torch.optim.AdamW(model.parameters(), lr=1e-3),
    mem_size=100,
    train_mb_size=64,  # of all ranks together
    device=device,
    evaluator=EvaluationPlugin(loggers=[]),
)
for experience in benchmark.train_stream[:2]:
    strategy.train(experience)
if DistributedHelper.is_main_process:
    print(f"{len(strategy.exemplars())} classes learned on {DistributedHelper.world_size} rank(s)")
