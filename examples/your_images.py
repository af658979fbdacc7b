import torch

from avalanche_hfc import HFCStrategy, TSAViT
from avalanche_hfc.benchmarks import split_folder

benchmark = split_folder("photos", num_steps=2, image_size=32)
model = TSAViT("vit_tiny_patch16_224", image_size=32, patch_size=8, msa_blocks=2)
strategy = HFCStrategy(
    model=model,
    optimizer=torch.optim.AdamW(model.parameters(), lr=1e-3),
    per_class=20,
    train_mb_size=32,
    train_epochs=2,
)
for experience in benchmark.train_stream:
    strategy.train(experience)
print([benchmark.class_names[c] for c in experience.classes_in_this_experience])
