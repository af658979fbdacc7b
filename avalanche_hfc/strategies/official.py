"""The parts of the authors' released code around its loss: model, optimizer, learning rates."""

from typing import Any

from avalanche.core import BasePlugin
from torch.optim import AdamW, Optimizer

from avalanche_hfc.models import TSAViT
from avalanche_hfc.plugins.official import OptimizerQuirksPlugin, WarmUpCosinePlugin

LR = 6.25e-5  # Sec. 4.1
LOWEST_LR = 1e-5  # released code
HEAD_LR_SCALE = 5.0  # released code: TSA, token and head
WEIGHT_DECAY = 1e-5  # released code
WARM_UP_EPOCHS = 3  # released code, of 30 epochs a step


def official_parts(
    *, num_classes: int | None = None, optimizer_quirks: bool = False, **model_options: Any
) -> tuple[TSAViT, Optimizer, list[BasePlugin]]:
    """(model, optimizer, plugins) of the released code, for `HFCStrategy(form="official",
    train_epochs=30, train_mb_size=64, …)`.

    The model: ViT-Base with adapters of width 64 in each of 11 blocks, embeddings and 5 blocks
    frozen, the residual TSA block with drop-path 0.1, the shared embedding at 0. The optimizer:
    AdamW, TSA, token and head at five times the rate. The plugins: three epochs of warm-up, then a
    cosine, anew in every step. `num_classes` grows the head for these ids at once; otherwise it
    grows by steps. `optimizer_quirks` adds two defects of the released code: a new optimizer every
    epoch, and no update of TSA, token and head in two epochs out of three. `model_options` go to
    `TSAViT`: weights="timm" fetches the MAE weights that the released code starts from.
    """
    released = {
        "residual": True,
        "adapter_dim": 64,
        "frozen_blocks": 5,
        "drop_path": 0.1,
        "embedding_std": 0.0,
    }
    model = TSAViT(**(released | model_options))
    if num_classes is not None:
        if num_classes < 1:
            raise ValueError(f"official_parts: num_classes must be 1 or more, got {num_classes}.")
        model.head.grow(range(num_classes))
    backbone = [parameter for parameter in model.backbone.parameters() if parameter.requires_grad]
    rest = [model.shared_embedding, *model.tsa.parameters(), *model.head.parameters()]
    groups = [
        {"params": backbone, "scale": 1.0},
        {"params": rest, "lr": HEAD_LR_SCALE * LR, "scale": HEAD_LR_SCALE},
    ]
    optimizer = AdamW(groups, lr=LR, weight_decay=WEIGHT_DECAY)
    plugins: list[BasePlugin] = [
        WarmUpCosinePlugin(lr=LR, lowest_lr=LOWEST_LR, warm_up=WARM_UP_EPOCHS)
    ]
    if optimizer_quirks:
        plugins.append(OptimizerQuirksPlugin())
    return model, optimizer, plugins
