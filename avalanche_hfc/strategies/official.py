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
    """Model, optimizer and plugins of HFC's released code, for an `HFCStrategy` with its loss.

    The model is a ViT-Base with adapters of width 64 in each of 11 blocks, embeddings and 5 blocks
    frozen, a residual TSA block with drop-path 0.1, and the shared embedding at 0. The optimizer is
    AdamW, with five times the learning rate for TSA, token and head. The plugins schedule three
    epochs of warm-up and a cosine in every step. The released code trains each step for 30 epochs
    with batches of 64.

    Args:
        num_classes: Grow the head for these class ids at once. By default it grows with the steps.
        optimizer_quirks: Add two defects of the released code: a new optimizer every epoch, and no
            update of TSA, token and head in two epochs out of three.
        **model_options: Arguments of `TSAViT`; ``weights="timm"`` downloads the MAE weights that
            the released code starts from.

    Returns:
        The model, the optimizer and a list of plugins.

    Raises:
        ValueError: If `num_classes` is below 1.

    Example:
        >>> from avalanche_hfc import official_parts
        >>> options = dict(embed_dim=16, depth=6, num_heads=2)
        >>> model, optimizer, plugins = official_parts(backbone_options=options)
        >>> [group["lr"] for group in optimizer.param_groups]
        [6.25e-05, 0.0003125]
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
