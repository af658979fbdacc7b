"""The strategy that follows each recording: its options, its first weights, its tensors by name."""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from recordings import DYTOX_NAMES, HFC_NAMES, hashed, normal_draws, renamed
from replay import Replay, copy, named_tensors
from torch import nn

from avalanche_hfc import HFCStrategy, TSAViT, official_parts
from avalanche_hfc.lab import override, recipe
from avalanche_hfc.lab.build import build_model, build_strategy


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

    def terms(strategy, terms, update):
        named = criterion_and_terms(strategy, terms, update)
        if update.step:
            named["L_FC"] = strategy.criterion() + terms["compensation"]
            named["L_RD"] = terms["relation"]
        return named

    return Replay(build, new_rows(recording.arrays), of_model, terms, {"head": head_logits})


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


# iCaRL, BiC, PODNet, AFC of PODNet's authors


def proxies(strategy):
    """All proxies and their gradients by class; a frozen one has none, which counts as 0."""
    head = strategy.model.head
    by_class = head.class_ids().argsort()
    parts = (head.old_proxies, head.new_proxies)
    if all(part.grad is None for part in parts):
        return torch.cat(parts)[by_class], None
    gradients = [torch.zeros_like(part) if part.grad is None else part.grad for part in parts]
    return torch.cat(parts)[by_class], torch.cat(gradients)[by_class]


def with_proxies(strategy) -> dict:
    return of_model(strategy) | {"head.weight": proxies(strategy)}


def resnet32(model: nn.Module, small_stem: bool = False) -> None:
    """Convolutions from numpy's generator; norms 1 and 0, but 0 and 0 at the end of a block."""
    for name, parameter in model.named_parameters():
        if parameter.dim() == 4:
            out, _, height, width = parameter.shape
            draws = normal_draws(name, parameter.shape) * math.sqrt(2 / (out * height * width))
            copy(parameter, draws * (0.01 if small_stem and name == "stem.0.weight" else 1))
        elif name.endswith("weight") and not name.startswith("head"):
            copy(parameter, torch.full_like(parameter, float("bn2" not in name)))


def rows_of_linear(arrays, head_of=lambda model: model.head):
    def put_in(strategy, step, phase):
        new = slice(2 * step, None)
        copy(head_of(strategy.model).weight[new], arrays[f"grown_head_{step}"][new])

    return put_in


def nearest_scores(strategy, images):
    return strategy.nearest_scores(images)[:, : strategy.model.head.out_features]


def icarl(recording):
    given = recording.settings
    build = of_recipe(
        "cifar100-b0-t10-icarl-resnet32@paper",
        resnet32,
        zero_residual=True,
        block_relu=False,
        lr=given["lr"],
        epochs=given["epochs"],
        drops_at="0.34,0.67",
        weight_decay=given["weight_decay"],
        schedule_delay=1,
        batch_size=given["batch_size"],
        mem_size=given["memory_size"],
        divisor="seen",
        columns="seen",
        drop_last=False,
        rule="icarl-code",
    )

    def terms(strategy, terms, update):
        return {"loss": sum(terms.values())}

    return Replay(
        build,
        rows_of_linear(recording.arrays),
        of_model,
        terms,
        {"head": head_logits, "nearest": nearest_scores},
    )


def bic(recording):
    given, arrays = recording.settings, recording.arrays
    build = of_recipe(
        "cifar100-b0-t10-bic-resnet32@paper",
        resnet32,
        zero_residual=True,
        block_relu=False,
        last_relu=True,
        lr=given["lr"],
        epochs=given["epochs"],
        drops_at="0.34,0.67",
        weight_decay=given["weight_decay"],
        schedule_delay=1,
        batch_size=given["batch_size"],
        mem_size=given["memory_size"],
        drop_last=False,
    )

    def terms(strategy, terms, update):
        named = {"classification": "ce", "distillation": "kd"} if update.step else {}
        parts = {name: terms[term] for term, name in named.items()}
        return parts | {"loss": sum(terms.values())}

    return Replay(
        build,
        rows_of_linear(arrays, lambda model: model.head.linear),
        lambda strategy: {
            name.replace("head.linear", "head"): tensor
            for name, tensor in of_model(strategy).items()
        },
        terms,
        {
            "head": lambda strategy, images: strategy.model.head.linear(
                strategy.model.embed(images)
            ),
            "corrected": head_logits,
        },
    )


def before_scale(strategy, images):
    return strategy.model(images) / strategy.model.head.scale


def scale(strategy, images):
    return strategy.model.head.scale.reshape(1)


def importance(strategy, images):
    return torch.cat(strategy.importance)


def of_podnet(recording, name: str, **options):
    given, arrays = recording.settings, recording.arrays
    build = of_recipe(
        f"cifar100-b0-t10-{name}-resnet32@paper",
        partial(resnet32, small_stem=True),
        lr=given["lr"],
        epochs=given["epochs"],
        batch_size=given["batch_size"],
        weight_decay=5e-4,
        mem_size=given["memory_size"],
        tune_epochs=2,
        tune_lr=0.05,
        **options,
    )

    def put_in(strategy, step, phase):
        if step == 0:
            head = strategy.model.head
            copy(head.new_proxies, arrays["grown_head_0"][head.new_ids])

    def terms(strategy, terms, update):
        return terms | ({"loss": sum(terms.values())} if update.phase == "train" else {})

    values = {"head": before_scale, "scale": scale}
    if name == "afc":
        values["importance"] = importance
    return Replay(build, put_in, with_proxies, terms, values, frozen=("head.weight",))


def podnet_released(recording):
    return of_podnet(recording, "podnet")


def afc_released(recording):
    return of_podnet(recording, "afc")


SWITCHED = dict(tune_mode="eval", herd_again="false")


def podnet_switched(recording):
    return of_podnet(recording, "podnet", **SWITCHED)


def afc_switched(recording):
    return of_podnet(recording, "afc", importance_pass="eval", **SWITCHED)


# FOSTER, SS-IL, PODNet with CSCCT


def by_hash(model: nn.Module, first_key: int, zero_residual: bool = False) -> None:
    """Convolutions from an integer hash, by their number among the parameters but the head's."""
    names = [name for name, _ in model.named_parameters() if not name.startswith("head")]
    for number, name in enumerate(names):
        parameter = model.get_parameter(name)
        if parameter.dim() == 4:
            out, _, height, width = parameter.shape
            spread = math.sqrt(3) * math.sqrt(2 / (out * height * width))
            copy(parameter, hashed(parameter.numel(), first_key + number) * spread)
        elif name.endswith("weight"):
            copy(
                parameter, torch.full_like(parameter, float(not zero_residual or "bn2" not in name))
            )


def foster(recording):
    given, arrays = recording.settings, recording.arrays
    build = of_recipe(
        "cifar100-b0-t10-foster-resnet32@paper",
        partial(by_hash, first_key=given["key_first_conv"]),
        lr=given["lr"],
        first_epochs=given["init_epochs"],
        epochs=given["boosting_epochs"],
        compress_epochs=given["compression_epochs"],
        batch_size=given["batch"],
        weight_decay=given["weight_decay"],
        mem_size=given["memory_size"],
    )

    def put_in(strategy, step, phase):
        new, head = slice(3 * step, None), strategy.model.head
        for name in ("weight", "bias"):
            both = arrays[f"start_{step}/fc.{name}"]
            if phase == "compress":
                rows = getattr(strategy.student.head.single, name)
                copy(rows[new], arrays[f"student_start_{step}/fc.{name}"][new])
            elif step == 0:
                copy(getattr(head.single, name), both)
            else:
                copy(getattr(head.single, name), arrays[f"start_{step}/fe_fc.{name}"])
                copy(getattr(head.boosted, name)[new], both[new])
        if phase == "train" and step:  # the half that reads the new extractor
            copy(head.boosted.weight[:, 64:], arrays[f"start_{step}/fc.weight"][:, 64:])

    def tensors(strategy):
        return pairs(strategy.student if strategy.phase == "compress" else strategy.model)

    def terms(strategy, terms, update):
        return terms

    logits = {
        "boosted": lambda strategy, images: strategy.predictor(images),
        "student": head_logits,
    }
    return Replay(build, put_in, tensors, terms, logits)


def ssil(recording):
    given, arrays = recording.settings, recording.arrays
    build = of_recipe(
        "imagenet100-b0-t10-ssil-resnet18@paper",
        partial(by_hash, first_key=given["key_first_conv"]),
        lr=given["lr"],
        epochs=given["epochs"],
        batch_size=given["batch"],
        drops_at="0.4,0.8",
        weight_decay=given["weight_decay"],
        mem_size=given["memory_budget"],
        replay_mb_size=given["replay"],
    )
    to_come = {}  # rows that the authors' head has from the start: only their decay moves them

    def put_in(strategy, step, phase):
        new, later = slice(3 * step, 3 * step + 3), slice(3 * step + 3, None)
        for name in ("weight", "bias"):
            rows, state = getattr(strategy.model.head, name), strategy.optimizer.state
            copy(rows[new], arrays[f"start_{step}/fc.{name}"][new])
            to_come[name] = [torch.as_tensor(arrays[f"start_{step}/fc.{name}"][later]), 0]
            if step:
                recorded = arrays[f"start_{step}/m/fc.{name}"]
                momentum = state[rows]["momentum_buffer"]
                old = slice(3 * step)
                assert np.allclose(momentum[old], recorded[old], rtol=1e-8, atol=1e-12)
                assert not momentum[new].any()  # ours start at 0, theirs have decayed
                copy(momentum[new], recorded[new])
                to_come[name][1] = torch.as_tensor(recorded[later])

    def tensors(strategy):
        found = of_model(strategy)
        for name, (rows, momentum) in to_come.items():
            momentum = given["momentum"] * momentum + given["weight_decay"] * rows
            rows = rows - strategy.optimizer.param_groups[0]["lr"] / step_of(strategy) * momentum
            to_come[name] = rows, momentum
            ours, gradient = found[f"head.{name}"]
            found[f"head.{name}"] = torch.cat([ours, rows]), gradient
        return found

    def step_of(strategy):
        return strategy.clock.train_exp_counter + 1

    def terms(strategy, terms, update):
        return terms

    return Replay(build, put_in, tensors, terms, {"logits": head_logits})


def podnet_cscct(recording):
    given, arrays = recording.settings, recording.arrays
    build = of_recipe(
        "cifar100-b0-t10-podnet-cscct-resnet32@paper",
        partial(by_hash, first_key=given["key_first_conv"], zero_residual=True),
        lr=given["lr"],
        epochs=given["epochs"],
        batch_size=given["batch"],
        weight_decay=given["weight_decay"],
        mem_size=given["memory_size"],
        tune_epochs=given["finetuning_epochs"],
        tune_lr=given["finetuning_lr"],
    )

    def put_in(strategy, step, phase):
        if phase == "train":
            head = strategy.model.head
            rows = arrays[f"start_{step}/classifier._weights.{step}"]
            copy(head.new_proxies, rows.reshape(3, 10, 64)[head.new_ids - 3 * step])

    def terms(strategy, terms, update):
        if "pod_flat" in terms:  # recorded before their factors
            factor = math.sqrt(update.step + 1)
            terms["pod_flat"] = terms["pod_flat"] / factor
            terms["pod_spatial"] = terms["pod_spatial"] / factor / 3
        return terms

    def tensors(strategy):
        """All proxies are one parameter of the authors' for each step, ours are two in all."""
        head, found = strategy.model.head, of_model(strategy)
        for part, class_ids in ((head.old_proxies, head.old_ids), (head.new_proxies, head.new_ids)):
            for step in (class_ids // 3).unique().tolist():
                rows = class_ids.argsort()[class_ids.sort().values // 3 == step]
                gradient = None if part.grad is None else part.grad[rows]
                found[f"classifier._weights.{step}"] = (part[rows], gradient)
        return found

    return Replay(
        build,
        put_in,
        tensors,
        terms,
        {"logits": before_scale},
        frozen=("classifier._weights.0", "classifier._weights.1"),
    )
