"""Real images by hand: 20 classes of CIFAR-100 in 5 steps, HFC against herding replay with plain cross-entropy.

    python experiments/cifar20.py --data FOLDER --seeds 3

FOLDER holds `cifar100_subset.npz`: for each class two lossless WebP strips, 32 pixels wide (training pictures stacked, then test
pictures), in `bytes` cut at `offsets`. Rows go to experiments/results/cifar20.csv; runs found there are not run again.
"""

import argparse
import io
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from avalanche.training.determinism.rng_manager import RNGManager
from avalanche.training.plugins import EvaluationPlugin
from PIL import Image
from tqdm import tqdm

from avalanche_hfc.benchmarks import class_order, split_npz
from avalanche_hfc.models import TSAViT
from avalanche_hfc.plugins import HerdingReplayPlugin
from avalanche_hfc.runs.quiet import quiet_host
from avalanche_hfc.runs.rows import RUN_COLUMNS, RowFile
from avalanche_hfc.runs.steps import TickPlugin, train_steps
from avalanche_hfc.strategies import HFCStrategy, IncrementalTemplate

NUM_CLASSES, NUM_STEPS, MEMORY, EPOCHS, BATCH, LR = 20, 5, 200, 30, 64, 5e-4
RESULTS = Path(__file__).parent / "results" / "cifar20.csv"
METHODS = ("hfc", "herding-replay")


def pack(source: Path, target: Path) -> None:
    """The first 20 classes of the paper's order, as ids 0…19 in that order, in the layout of `split_npz`."""
    packed = np.load(source, allow_pickle=False)
    raw, offsets = packed["bytes"].tobytes(), packed["offsets"]
    strips = [np.asarray(Image.open(io.BytesIO(raw[a:b])).convert("RGB")).reshape(-1, 32, 32, 3) for a, b in pairwise(offsets)]
    kept = class_order("cifar100-a")[:NUM_CLASSES]
    train, test = ([strips[2 * c + part] for c in kept] for part in (0, 1))
    np.savez(
        target,
        x_train=np.concatenate(train),
        y_train=np.repeat(np.arange(NUM_CLASSES), [len(part) for part in train]),
        x_test=np.concatenate(test),
        y_test=np.repeat(np.arange(NUM_CLASSES), [len(part) for part in test]),
        class_names=packed["class_names"][list(kept)],
    )


def build(method: str, tick):
    model = TSAViT("vit_tiny_patch16_224", image_size=32, patch_size=8, msa_blocks=4, backbone_options=dict(embed_dim=128, num_heads=4))
    common = dict(
        model=model,
        optimizer=torch.optim.AdamW(model.parameters(), lr=LR),
        train_mb_size=BATCH,
        train_epochs=EPOCHS,
        eval_mb_size=512,
        evaluator=EvaluationPlugin(),
    )
    if method == "hfc":
        return HFCStrategy(mem_size=MEMORY, plugins=[TickPlugin(tick)], **common)
    return IncrementalTemplate(plugins=[TickPlugin(tick), HerdingReplayPlugin(mem_size=MEMORY)], **common)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with cifar100_subset.npz")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--work", type=Path, default=Path("runs"), help="where the repacked images go")
    arguments = parser.parse_args()
    source = arguments.data / "cifar100_subset.npz"
    if not source.is_file():
        parser.error(f"no {source}")
    torch.set_num_threads(1)
    arguments.work.mkdir(parents=True, exist_ok=True)
    images = arguments.work / "cifar20.npz"
    pack(source, images)
    file = RowFile(RESULTS, RUN_COLUMNS)
    done = {(row["method"], int(row["seed"]), int(row["step"])) for row in file.rows()}
    runs = [(m, s) for s in range(arguments.seeds) for m in METHODS if (m, s, NUM_STEPS - 1) not in done]
    with tqdm(total=len(runs) * NUM_STEPS * EPOCHS, unit="epoch") as bar:
        for method, seed in runs:
            bar.set_description(f"{method}, seed {seed}")
            benchmark = split_npz(images, num_steps=NUM_STEPS, class_order=range(NUM_CLASSES), transforms="dytox")
            RNGManager.set_random_seeds(seed)  # torch, numpy and python: the augmentation draws from all three
            for row in train_steps(build(method, bar.update), benchmark):
                bar.set_postfix_str(f"accuracy {row['accuracy']:.3f}")
                if (method, seed, row["step"]) not in done:
                    file.append({"method": method, "seed": seed, **row})


if __name__ == "__main__":
    quiet_host()
    main()
