"""Weight files: tensors by name, read as data (never unpickled into objects), with a report of what
went where.
"""

import math
import pickle
from collections.abc import Collection
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import torch
from safetensors.torch import load_file
from timm.layers import resample_abs_pos_embed
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from avalanche_hfc._types import State
from avalanche_hfc.models.heads import GrowingLinear

BACKBONE = "backbone."  # where TSAViT keeps the encoder
PARALLEL = "module."  # put in front of every name by DataParallel


@dataclass(frozen=True)
class LoadReport:
    """Names of tensors: `matched` and `missing` are the module's, `unexpected` the file's. What was
    `resampled` is matched too.
    """

    matched: tuple[str, ...]
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    resampled: tuple[str, ...]
    stripped: str = ""  # a prefix that every name of the file had and that was taken off
    added: str = (
        ""  # a prefix put before the file's names: a file of a bare encoder, loaded into a TSAViT
    )


def load_weights(module: nn.Module, path: str | PathLike[str]) -> LoadReport:
    """Copy the tensors of a .safetensors, .pth or .pt file (plain, {"model": …} or {"state_dict":
    …}) into the module, by name.

    Position embeddings are resampled to the module's grid; any other difference of shape is an
    error, but for the rows of a growing head. Nothing is copied unless everything fits.
    """
    path = Path(path)
    entries = read_tensors(path)
    stripped = PARALLEL if entries and all(name.startswith(PARALLEL) for name in entries) else ""
    entries = {name.removeprefix(stripped): entry for name, entry in entries.items()}
    own = module.state_dict()
    added = max(("", BACKBONE), key=lambda prefix: sum(prefix + name in own for name in entries))
    incoming = {
        added + name: entry
        for name, entry in entries.items()
        if added + name in own and isinstance(entry, Tensor)
    }
    if not incoming:
        raise ValueError(
            f"{path}: no tensor of this file belongs to {type(module).__name__}. File: "
            f"{_few(entries)}. Module: {_few(own)}."
        )
    resampled = []
    for name, tensor in incoming.items():
        if tensor.shape != own[name].shape and not _grows(module, name, tensor):
            incoming[name] = _resampled(module, name, tensor, own[name], path)
            resampled.append(name)
    module.load_state_dict(incoming, strict=False)
    return LoadReport(
        matched=tuple(incoming),
        missing=tuple(name for name in own if name not in incoming),
        unexpected=tuple(stripped + name for name in entries if added + name not in incoming),
        resampled=tuple(resampled),
        stripped=stripped,
        added=added,
    )


def read_tensors(path: Path) -> State:
    """Name -> tensor of a weights file; an entry that is no tensor stays, for the report."""
    if not path.is_file():
        raise FileNotFoundError(f"No weights file at {path.absolute()}.")
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
    except pickle.UnpicklingError as error:
        reason = "it holds pickled objects, or is damaged; only files of tensors are read"
        raise ValueError(
            f"{path}: {reason}. Save the state_dict alone. ({_first_line(error)})"
        ) from error
    except Exception as error:  # a file that lies about its content fails anywhere in its reader
        raise ValueError(f"{path}: not a readable weights file ({_first_line(error)}).") from error
    for key in ("model", "state_dict"):
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    if not isinstance(content, dict) or not all(isinstance(name, str) for name in content):
        raise ValueError(f"{path}: expected tensors by name, found {type(content).__name__}.")
    return content


def _grows(module: nn.Module, name: str, tensor: Tensor) -> bool:
    """Whether the tensor differs in the rows of a growing head only."""
    owner, _, leaf = name.rpartition(".")
    head = module.get_submodule(owner)
    return (
        isinstance(head, GrowingLinear)
        and tensor.shape[1:]
        == head.get_parameter("weight" if leaf == "weight" else "bias").shape[1:]
    )


def _resampled(module: nn.Module, name: str, tensor: Tensor, own: Tensor, path: Path) -> Tensor:
    """A position embedding on the module's grid, by timm's bicubic rule. The file's grid is square,
    its prefix tokens are the module's.
    """
    owner, _, leaf = name.rpartition(".")
    vit = module.get_submodule(owner)
    if (
        leaf == "pos_embed"
        and isinstance(vit, VisionTransformer)
        and tensor.ndim == 3
        and tensor.shape[-1] == own.shape[-1]
    ):
        num_prefix = 0 if vit.no_embed_class else vit.num_prefix_tokens
        num_patches = tensor.shape[1] - num_prefix
        if num_patches > 0 and math.isqrt(num_patches) ** 2 == num_patches:
            return resample_abs_pos_embed(
                tensor, new_size=list(vit.patch_embed.grid_size), num_prefix_tokens=num_prefix
            )
    raise ValueError(
        f"{path}: {name} has shape {tuple(tensor.shape)}, {type(module).__name__} needs "
        f"{tuple(own.shape)}."
    )


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


def _few(names: Collection[str]) -> str:
    first = list(names)[:3]
    return (
        ", ".join(first) + (f", … ({len(names)} names)" if len(names) > 3 else "")
        if first
        else "empty"
    )
