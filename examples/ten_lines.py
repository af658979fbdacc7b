import torch

from avalanche_hfc import HFCStrategy, TSAViT
from avalanche_hfc.benchmarks import split_digits

benchmark = split_digits(num_steps=5)
vit = dict(embed_dim=64, num_heads=4, in_chans=1)
model = TSAViT(
    "vit_tiny_patch16_224", image_size=8, patch_size=4, msa_blocks=2, backbone_options=vit
)
strategy = HFCStrategy(
    model=model,
    optimizer=torch.optim.AdamW(model.parameters(), lr=1e-3),
    mem_size=20,
    train_mb_size=32,
    train_epochs=5,
)
for experience in benchmark.train_stream:
    strategy.train(experience)
    strategy.eval(benchmark.test_stream)
