"""The strategy that follows each recording: its options, its first weights, its tensors by name."""

from collections.abc import Callable

import torch
from recordings import DYTOX_NAMES, HFC_NAMES, renamed
from replay import Replay, copy, named_tensors
from torch import nn

from avalanche_hfc import HFCStrategy, TSAViT, official_parts
from avalanche_hfc.engine.build import build_model, build_strategy
from avalanche_hfc.recipes import override, recipe


def pairs(module: nn.Module) -> dict:
    """Each tensor of a module by name, with the gradient that the optimizer was given."""
    return {name: (tensor, tensor.grad) for name, tensor in named_tensors(module).items()}


def of_model(strategy) -> dict:
    return pairs(strategy.model)


def head_logits(strategy, images):
    return strategy.model(images)


def criterion_and_terms(strategy, terms, update):
    """The total; Avalanche sums it up in float32."""
    return {
        "loss": strategy.criterion() + sum(terms[name] for name in terms if name != "criterion")
    }


def of_recipe(name: str, prepared: Callable, **changes):
    """Builds the strategy of a recipe at the paper's scale, with the sizes of a recording."""

    def build(plugins):
        changed = override(recipe(name), {path: str(value) for path, value in changes.items()})
        model = build_model(changed).double()
        prepared(model)
        return build_strategy(changed, model, plugins=plugins)

    return build


# HFC and DyTox


def new_rows(arrays):
    """The rows of the head that come with a step."""

    def put_in(strategy, step, phase):
        for name in ("weight", "bias"):
            rows = arrays.get(f"new_rows/{step}/{name}", arrays.get(f"init/head.{name}"))
            copy(getattr(strategy.model.head, name)[-len(rows) :], rows)

    return put_in


def first_weights(model: nn.Module, arrays, names: dict[str, str]) -> None:
    """Those of all but the head, which has no rows yet."""
    tensors = named_tensors(model)
    for name, values in arrays.items():
        ours = renamed(name.removeprefix("init/"), names)
        if name.startswith("init/") and not ours.startswith("head."):
            copy(tensors[ours], values)


def hfc_official(recording):
    given = recording.settings

    def build(plugins):
        model, optimizer, parts = official_parts(
            backbone="vit_tiny_patch16_224",
            image_size=given["size"],
            patch_size=given["patch"],
            msa_blocks=given["depth"],
            adapter_dim=given["ffn"],
            drop_path=0,
            backbone_options=dict(
                embed_dim=given["dim"], depth=given["depth"], num_heads=given["heads"]
            ),
        )
        model.double()
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
        first_weights(model, recording.arrays, HFC_NAMES)
        return HFCStrategy(
            model=model,
            optimizer=optimizer,
            form="official",
            optimizer_quirks=True,
            mem_size=given["memory"],
            train_mb_size=given["batch"],
            train_epochs=given["epochs"],
            plugins=[*parts, *plugins],
        )

    return Replay(
        build, new_rows(recording.arrays), of_model, criterion_and_terms, {"head": head_logits}
    )


def hfc_paper(recording):
    given = recording.settings

    def build(plugins):
        model = TSAViT(
            "vit_tiny_patch16_224",
            image_size=given["size"],
            patch_size=given["patch"],
            msa_blocks=given["msa_blocks"],
            backbone_options=dict(
                embed_dim=given["dim"], depth=given["msa_blocks"], num_heads=given["heads"]
            ),
        ).double()
        first_weights(model, recording.arrays, {})
        return HFCStrategy(
            model=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=given["lr"]),
            form="paper",
            mem_size=given["memory"],
            train_mb_size=12,
            train_epochs=given["epochs"],
            plugins=plugins,
        )

    return Replay(
        build, new_rows(recording.arrays), of_model, criterion_and_terms, {"head": head_logits}
    )


def dytox(recording):
    given, arrays = recording.settings, recording.arrays
    build = of_recipe(
        "cifar100-b0-t10-dytox-convit@paper",
        lambda model: first_weights(model, arrays, DYTOX_NAMES),
        image_size=given["size"],
        patch_size=given["patch"],
        embed_dim=given["dim"],
        num_blocks=given["depth"] - 1,
        num_heads=given["heads"],
        drop_path=given["drop_path"],
        lr=given["lr"] * given["batch"] / 512,
        epochs=given["epochs"],
        batch_size=given["batch"],
        mem_size=given["memory"],
        tune_epochs=given["ft_epochs"],
    )

    def put_in(strategy, step, phase):
        if phase == "tune":
            return
        tensors = named_tensors(strategy.model)
        for name, values in arrays.items():
            beginning = f"new/{step}/" if step else "init/"
            ours = renamed(name.removeprefix(beginning), DYTOX_NAMES)
            if name.startswith(beginning) and ours in tensors:
                copy(tensors[ours], values)

    def terms(strategy, terms, update):
        return terms

    return Replay(build, put_in, of_model, terms, {"head": head_logits}, unordered=("tune",))
