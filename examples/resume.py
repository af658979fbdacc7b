import torch

from avalanche_hfc import HFCStrategy, TSAViT
from avalanche_hfc.benchmarks import split_digits


def build():
    vit = dict(embed_dim=32, num_heads=2, in_chans=1)
    model = TSAViT(
        "vit_tiny_patch16_224", image_size=8, patch_size=4, msa_blocks=1, backbone_options=vit
    )
    return HFCStrategy(
        model=model, optimizer=torch.optim.AdamW(model.parameters()), mem_size=20, train_mb_size=64
    )


benchmark, first = split_digits(num_steps=5), build()
first.train(benchmark.train_stream[0])
torch.save(first.state_dict(), "state.pth")

second = build()
second.load_state_dict(torch.load("state.pth", weights_only=True))
second.train(benchmark.train_stream[1])
