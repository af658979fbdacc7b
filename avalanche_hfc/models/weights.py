"""Weight files: tensors by name, read as data and never unpickled into objects."""

import math
import pickle
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from timm.layers import resample_abs_pos_embed
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from avalanche_hfc._names import shortened
from avalanche_hfc._types import State
from avalanche_hfc.models.heads import GrowingLinear

PACKAGED = Path(__file__).parents[1] / "weights"  # files that ship with the package
BACKBONE = "backbone."  # where TSAViT keeps the encoder
BLOCK = re.compile(r"((?:.*\.)?blocks)\.(\d+)\.")  # of a ViT
PARALLEL = "module."  # put in front of every name by DataParallel


@dataclass(frozen=True)
class LoadReport:
    """Which tensors `load_weights` copied and which not.

    Attributes:
        matched: Names of the module's tensors that were copied, resampled ones included.
        missing: Names of the module's tensors that the file does not have.
        unexpected: Names in the file that were not used.
        resampled: Names of position embeddings that were resampled.
        stripped: A prefix of every name in the file that was removed, such as ``module.``.
        added: A prefix that was added to the names in the file, such as ``backbone.``.

    Example:
        >>> from avalanche_hfc.models import LoadReport
        >>> LoadReport(("weight",), missing=("bias",), unexpected=(), resampled=()).missing
        ('bias',)
    """

    matched: tuple[str, ...]
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    resampled: tuple[str, ...]
    stripped: str = ""
    added: str = ""

    def summary(self) -> str:
        """How many tensors were matched, missing and unused, and which were resampled.

        Returns:
            One line.

        Example:
            >>> LoadReport(("norm.weight",), ("head.weight", "head.bias"), (), ()).summary()
            'matched 1, missing 2 (head.*), unused 0'
        """
        missing, unused = (_parts(names) for names in (self.missing, self.unexpected))
        resampled = f", resampled {', '.join(self.resampled)}" if self.resampled else ""
        return (
            f"matched {len(self.matched)}, missing {len(self.missing)}{missing}, "
            f"unused {len(self.unexpected)}{unused}{resampled}"
        )


def loaded_from_file(model: nn.Module) -> str:
    """What a model took from a weights file when it was built, in one line.

    Args:
        model: A model, as built or trained.

    Returns:
        The summary of the file's report; "no weights file" where none was read.
    """
    report = report_of(model)
    return "no weights file" if report is None else report.summary()


def report_of(model: nn.Module) -> LoadReport | None:
    """The report of the weights file that a model was built with; None where none was read."""
    reports = (getattr(module, "load_report", None) for module in model.modules())
    return next(filter(None, reports), None)


def packaged_weights() -> list[str]:
    """Names that `weights=` takes for files that ship with the package."""
    return sorted(path.stem for path in PACKAGED.glob("*.safetensors"))


def load_weights(module: nn.Module, path: str | PathLike[str]) -> LoadReport:
    """Copy the tensors of a file into a module, by name.

    The file is a state dict, or has one under ``"model"`` or ``"state_dict"``; it is read as data
    and never unpickled into objects. Position embeddings are resampled to the module's grid; a
    growing head takes any number of rows. A file that states its number of heads must be that of
    the module; of the blocks of a ViT it may have more than the module, not fewer. Nothing is
    copied unless everything fits.

    Args:
        module: The module.
        path: A file that ends in .safetensors, .pth or .pt, or a name of `packaged_weights()`.

    Returns:
        Which tensors were copied and which not.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file cannot be read, no name matches, a shape differs, or it has fewer
            blocks than the module.

    Example:
        >>> import tempfile, torch
        >>> from avalanche_hfc.models import load_weights
        >>> layer = torch.nn.Linear(2, 1)
        >>> with tempfile.NamedTemporaryFile(suffix=".pt") as file:
        ...     torch.save({"weight": torch.ones(1, 2)}, file.name)
        ...     load_weights(layer, file.name).missing
        ('bias',)
    """
    if path in packaged_weights():
        path = PACKAGED / f"{path}.safetensors"
    path = Path(path)
    entries = read_tensors(path)
    _check_heads(module, path)
    stripped = PARALLEL if entries and all(name.startswith(PARALLEL) for name in entries) else ""
    entries = {name.removeprefix(stripped): entry for name, entry in entries.items()}
    current = module.state_dict()
    added = max(
        ("", BACKBONE), key=lambda prefix: sum(prefix + name in current for name in entries)
    )
    incoming = {
        added + name: entry
        for name, entry in entries.items()
        if added + name in current and isinstance(entry, Tensor)
    }
    if not incoming:
        raise ValueError(
            f"{path}: no tensor of this file belongs to {type(module).__name__}. File: "
            f"{shortened(list(entries), 3)}. Module: {shortened(list(current), 3)}."
        )
    _check_blocks(module, incoming, path)
    resampled = []
    for name, tensor in incoming.items():
        if tensor.shape != current[name].shape and not _grows(module, name, tensor):
            incoming[name] = _resampled(module, name, tensor, current[name], path)
            resampled.append(name)
    module.load_state_dict(incoming, strict=False)
    return LoadReport(
        matched=tuple(incoming),
        missing=tuple(name for name in current if name not in incoming),
        unexpected=tuple(stripped + name for name in entries if added + name not in incoming),
        resampled=tuple(resampled),
        stripped=stripped,
        added=added,
    )


def read_tensors(path: Path) -> State:
    """Tensors of a weights file by name; an entry that is no tensor is kept for the report."""
    if not path.is_file():
        names = "".join(f", {name}" for name in packaged_weights())
        raise FileNotFoundError(
            f"No weights file at {path.absolute()}. Allowed: none, timm{names}, or a file."
        )
    if path.suffix not in (".safetensors", ".pth", ".pt"):
        raise ValueError(
            f"{path}: a weights file ends in .safetensors, .pth or .pt, not {path.suffix!r}."
        )
    try:
        content = (
            load_file(path)
            if path.suffix == ".safetensors"
            else torch.load(path, map_location="cpu", weights_only=True)
        )
    except pickle.UnpicklingError:  # its text tells how to read the file in spite of the danger
        raise ValueError(
            f"{path}: it holds pickled objects, or is damaged; only tensors are read. Save the "
            "state_dict alone."
        ) from None
    except Exception as error:  # a file that lies about its content fails anywhere in its reader
        why = (str(error) or type(error).__name__).splitlines()[0]
        raise ValueError(f"{path}: not a readable weights file ({why}).") from error
    for key in ("model", "state_dict"):
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    if not isinstance(content, dict) or not all(isinstance(name, str) for name in content):
        raise ValueError(f"{path}: expected tensors by name, found {type(content).__name__}.")
    return content


def _check_heads(module: nn.Module, path: Path) -> None:
    """Refuse a file of another number of heads, which the shapes do not show."""
    if path.suffix != ".safetensors":
        return
    with safe_open(path, framework="pt") as file:
        stated = (file.metadata() or {}).get("num_heads")
    num_heads = getattr(module, "num_heads", None)
    if stated is not None and num_heads is not None and int(stated) != num_heads:
        raise ValueError(
            f"{path}: the file has {stated} attention heads, {type(module).__name__} has "
            f"{num_heads}."
        )


def blocks_in(names: Iterable[str]) -> dict[str, int]:
    """The number of blocks behind each prefix of the names of tensors.

    Example:
        >>> blocks_in(["norm.bias", "blocks.0.norm1.bias", "blocks.1.norm1.bias"])
        {'blocks': 2}
    """
    found = dict.fromkeys(match.groups() for name in names if (match := BLOCK.match(name)))
    return dict(Counter(prefix for prefix, _ in found))


def _check_blocks(module: nn.Module, incoming: State, path: Path) -> None:
    """Refuse a file of fewer blocks: the others would start at random."""
    needed = blocks_in(module.state_dict())
    for prefix, number in blocks_in(incoming).items():
        if number < needed[prefix]:
            raise ValueError(
                f"{path}: the file has {number} blocks, {type(module).__name__} has "
                f"{needed[prefix]}. Choose msa_blocks of at most {number}."
            )


def _grows(module: nn.Module, name: str, tensor: Tensor) -> bool:
    """Whether the tensor differs in the rows of a growing head only."""
    owner, _, leaf = name.rpartition(".")
    head = module.get_submodule(owner)
    return isinstance(head, GrowingLinear) and tensor.shape[1:] == getattr(head, leaf).shape[1:]


def _resampled(module: nn.Module, name: str, tensor: Tensor, current: Tensor, path: Path) -> Tensor:
    """A position embedding on the module's grid, by timm's bicubic rule.

    The file's grid must be square and its prefix tokens the module's.
    """
    owner, _, leaf = name.rpartition(".")
    vit = module.get_submodule(owner)
    if (
        leaf == "pos_embed"
        and isinstance(vit, VisionTransformer)
        and tensor.ndim == 3
        and tensor.shape[-1] == current.shape[-1]
    ):
        num_prefix = 0 if vit.no_embed_class else vit.num_prefix_tokens
        num_patches = tensor.shape[1] - num_prefix
        if num_patches > 0 and math.isqrt(num_patches) ** 2 == num_patches:
            return resample_abs_pos_embed(
                tensor, new_size=list(vit.patch_embed.grid_size), num_prefix_tokens=num_prefix
            )
    raise ValueError(
        f"{path}: {name} has shape {tuple(tensor.shape)}, {type(module).__name__} needs "
        f"{tuple(current.shape)}."
    )


def _parts(names: tuple[str, ...]) -> str:
    """The parts of a model that tensors belong to, as in " (backbone.blocks.5.*, head.*)"."""
    parts = dict.fromkeys(
        re.sub(r"^((?:backbone\.|encoder\.)*(?:blocks\.\d+|[^.]+)\.).*", r"\1*", name)
        for name in names
    )
    return f" ({', '.join(parts)})" if parts else ""
