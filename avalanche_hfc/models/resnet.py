"""ResNet-32 for CIFAR and ResNet-18, made of timm's BasicBlock, with optional ReLUs after the sums.

`b` images, `D` = embed_dim. A stage is a residual sum before its ReLU, whatever the options: the
map that PODNet and AFC distil.
"""

from collections.abc import Callable
from os import PathLike
from typing import Any

import timm
import torch
import torch.nn.functional as F
from jaxtyping import Float
from timm.models.resnet import BasicBlock
from torch import Tensor, nn

from avalanche_hfc.models.features import EmbeddingModel, Features, gradients_of
from avalanche_hfc.models.heads import GrowingLinear
from avalanche_hfc.models.modes import Recomputed
from avalanche_hfc.models.weights import LoadReport, load_weights

STEMS = ("7x7", "3x3")
BLOCKS_PER_STAGE = 5  # of ResNet-32: 1 + 3 · 5 · 2 convolutions, and the classifier


class _ResNet(Recomputed, EmbeddingModel):
    """Stem, residual blocks, mean over the map, and a growing head."""

    def __init__(
        self, embed_dim: int, *, last_relu: bool, stage_relu: bool | None, block_relu: bool
    ):
        super().__init__()
        self.embed_dim = embed_dim
        self.last_relu = last_relu
        self.stage_relu = block_relu if stage_relu is None else stage_relu
        self.block_relu = block_relu

    def _stem(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def _blocks(self) -> list[nn.Module]:
        raise NotImplementedError

    def _stage_ends(self) -> tuple[int, int, int, int]:
        """The blocks, counted from 1, whose sums are the stages."""
        raise NotImplementedError

    def _sums(self, x: Tensor) -> list[Tensor]:
        """The residual sum of every block, before any ReLU."""
        sums = [self._stem(x)]
        for number, block in enumerate(self._blocks()):
            before = F.relu(sums[-1]) if number > 0 and self._has_relu(number) else sums[-1]
            sums.append(self.run_block(block, before))
        return sums[1:]

    def _has_relu(self, number: int) -> bool:
        """Whether the sum of block `number`, counted from 1 and not the last, has a ReLU."""
        return self.stage_relu if number in self._stage_ends() else self.block_relu

    def _pool(self, last: Float[Tensor, "b D h w"]) -> Float[Tensor, "b D"]:
        return (F.relu(last) if self.last_relu else last).mean((2, 3))

    def embed(self, x: Float[Tensor, "b c height width"]) -> Float[Tensor, "b D"]:
        """The mean of the last map, the input of the head.

        Args:
            x: Images, shape ``(b, c, height, width)``.

        Returns:
            Embeddings of shape ``(b, D)``.
        """
        return self._pool(self._sums(x)[-1])

    def features(self, x: Float[Tensor, "b c height width"]) -> Features:
        sums = self._sums(x)
        return Features(self._pool(sums[-1]), [sums[end - 1] for end in self._stage_ends()], None)

    def stage_gradients(
        self, x: Float[Tensor, "b c height width"], loss: Callable[[Tensor], Tensor]
    ) -> list[Tensor]:
        sums = self._sums(x)
        return gradients_of(
            loss(self._pool(sums[-1])), [sums[end - 1] for end in self._stage_ends()]
        )


class ResNet32(_ResNet):
    """The CIFAR ResNet with 32 layers, D = 64, 0.46 M parameters, and a growing head.

    iCaRL uses ``last_relu=False``; PODNet and AFC use ``last_relu=False, block_relu=False,
    zero_residual=True``, so that no sum has a ReLU. The stages are the ends of the first two
    widths, the last block but one, and the last: 16×32², 32×16², 64×8² and 64×8² at 32 pixels.
    Where the width doubles, the shortcut takes every second pixel and adds zero channels.

    Args:
        last_relu: Apply a ReLU to the last residual sum, before pooling.
        stage_relu: Apply a ReLU to the residual sums that end a stage. By default as `block_relu`.
        block_relu: Apply a ReLU to the residual sums inside a stage.
        zero_residual: Initialise the last norm of each block with 0, so that the block is its
            shortcut at first.
        init: Convolutions start with He's normal draws, of variance 2 / ``"fan_out"`` or, as in
            iCaRL's code, 2 / ``"fan_in"``.
        in_channels: Number of channels of the images.

    Shape:
        Images ``(b, c, height, width)`` in, logits ``(b, C)`` out.

    Raises:
        ValueError: If `init` is unknown.

    Example:
        >>> import torch
        >>> from avalanche_hfc.models import ResNet32
        >>> model = ResNet32()
        >>> model.head.grow(range(10))
        >>> model(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """

    def __init__(
        self,
        *,
        last_relu: bool = True,
        stage_relu: bool | None = None,
        block_relu: bool = True,
        zero_residual: bool = False,
        init: str = "fan_out",
        in_channels: int = 3,
    ):
        super().__init__(64, last_relu=last_relu, stage_relu=stage_relu, block_relu=block_relu)
        self.stem = nn.Sequential(
            nn.Conv2d(in_channels, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()
        )
        blocks, width_before = [], 16
        for width in (16, 32, 64):
            for _ in range(BLOCKS_PER_STAGE):
                halves = width != width_before
                block = BasicBlock(
                    width_before,
                    width,
                    stride=2 if halves else 1,
                    downsample=_HalfSize() if halves else None,
                )
                block.act2 = nn.Identity()  # ours to apply: the sum itself is a stage
                blocks.append(block)
                width_before = width
        self.blocks = nn.ModuleList(blocks)
        self._initialise(zero_residual, init)
        self.head = GrowingLinear(self.embed_dim)

    def _initialise(self, zero_residual: bool, init: str) -> None:
        mode: Any = init
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode=mode, nonlinearity="relu")
            elif isinstance(module, BasicBlock) and zero_residual:
                module.zero_init_last()

    def _stem(self, x: Tensor) -> Tensor:
        return self.stem(x)

    def _blocks(self) -> list[nn.Module]:
        return [*self.blocks]

    def _stage_ends(self) -> tuple[int, int, int, int]:
        last = len(self.blocks)
        return BLOCKS_PER_STAGE, 2 * BLOCKS_PER_STAGE, last - 1, last


class _HalfSize(nn.Module):
    """Every second pixel, twice the channels, the new ones 0."""

    def forward(self, x: Float[Tensor, "b c height width"]) -> Float[Tensor, "b d h w"]:
        return F.pad(x[..., ::2, ::2], (0, 0, 0, 0, 0, x.shape[1]))


class ResNet18(_ResNet):
    """timm's resnet18 with a growing head, D = 512, 11.2 M parameters.

    PODNet and AFC on ImageNet use ``stem="3x3", max_pool=True, last_relu=False, stage_relu=False,
    zero_residual=True``: the first block of each layer keeps the ReLU after its sum, the second has
    none. The stages are the four layers.

    Args:
        stem: First convolution: ``"7x7"`` with stride 2 (ImageNet) or ``"3x3"`` with stride 1.
        max_pool: Halve the map once more after the stem. By default only with ``"7x7"``.
        last_relu: Apply a ReLU to the last residual sum, before pooling.
        stage_relu: Apply a ReLU to the residual sums that end a stage. By default as `block_relu`.
        block_relu: Apply a ReLU to the residual sums inside a stage.
        zero_residual: Initialise the last norm of each block with 0, so that the block is its
            shortcut at first.
        in_channels: Number of channels of the images.
        weights: None for random weights, ``"timm"`` to download timm's (``"7x7"`` only), or the
            path of a file; see `load_weights`. The report is kept as `load_report`.

    Shape:
        Images ``(b, c, height, width)`` in, logits ``(b, C)`` out.

    Raises:
        ValueError: If the stem is unknown, or timm's weights are requested with another stem.

    Example:
        >>> import torch
        >>> from avalanche_hfc.models import ResNet18
        >>> model = ResNet18(stem="3x3")
        >>> model.head.grow(range(10))
        >>> model(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """

    def __init__(
        self,
        *,
        stem: str = "7x7",
        max_pool: bool | None = None,
        last_relu: bool = True,
        stage_relu: bool | None = None,
        block_relu: bool = True,
        zero_residual: bool = False,
        in_channels: int = 3,
        weights: str | PathLike[str] | None = None,
    ):
        if stem not in STEMS:
            raise ValueError(f"ResNet18: stem must be one of {', '.join(STEMS)}, got {stem!r}.")
        if weights == "timm" and stem != "7x7":
            raise ValueError(f"ResNet18: timm's weights have the stem 7x7, got stem={stem!r}.")
        super().__init__(512, last_relu=last_relu, stage_relu=stage_relu, block_relu=block_relu)
        net = timm.create_model(
            "resnet18",
            pretrained=weights == "timm",
            num_classes=0,
            in_chans=in_channels,
            zero_init_last=zero_residual,
        )
        if stem == "3x3":
            net.conv1 = nn.Conv2d(in_channels, 64, 3, padding=1, bias=False)
            nn.init.kaiming_normal_(net.conv1.weight, mode="fan_out", nonlinearity="relu")
        if not (stem == "7x7" if max_pool is None else max_pool):
            net.maxpool = nn.Identity()
        self.backbone = net
        for block in self._blocks():
            block.act2 = nn.Identity()
        self.head = GrowingLinear(self.embed_dim)
        self.load_report: LoadReport | None = (
            None if weights in (None, "timm") else load_weights(self, weights)
        )

    def _stem(self, x: Tensor) -> Tensor:
        net = self.backbone
        return net.maxpool(torch.relu(net.bn1(net.conv1(x))))

    def _blocks(self) -> list[nn.Module]:
        net = self.backbone
        return [*net.layer1, *net.layer2, *net.layer3, *net.layer4]

    def _stage_ends(self) -> tuple[int, int, int, int]:
        return 2, 4, 6, 8
