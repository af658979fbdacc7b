"""What the authors' code did on tiny data, as numbers, in one form for all recordings.

The files and their fields are described in the README of each folder. An *id* is the row of a
training image; an *order* is the ids of an epoch as they were trained. Tensors are named as in our
models.
"""

import json
import re
import zlib
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path

import numpy as np
import torch

HERE = Path(__file__).parent
BLOCKS = 5  # of a stage of ResNet-32


@dataclass
class Update:
    """One update of the authors' training; checksums by tensor, NaN where there is no gradient."""

    step: int
    phase: str
    epoch: int
    terms: dict[str, float]
    rates: list[float]
    weights: dict[str, np.ndarray]
    gradients: dict[str, np.ndarray]


@dataclass
class Step:
    """What the authors' code had after a step."""

    exemplars: list[int]  # class by class, best first
    accuracy: float | None
    values: dict[str, np.ndarray]  # kinds of logits of the probe, and what the method fits


@dataclass
class Recording:
    """One training of the authors' code: what went in, and what came out."""

    name: str
    arrays: dict  # as in the files
    settings: dict
    train: tuple[torch.Tensor, torch.Tensor]  # images and labels
    test: tuple[torch.Tensor, torch.Tensor]
    probe: torch.Tensor
    classes: list[list[int]]  # that each step brings
    checksums: object  # tensor -> the numbers that were recorded of it
    orders: dict[tuple[int, str, int], list[int]]  # (step, phase, epoch) -> ids
    updates: list[Update]
    steps: list[Step]


def load(name: str) -> Recording:
    """The recording of this name."""
    for folder, read in FOLDERS.items():
        if name in folder_names(folder):
            return read(HERE / folder, name)
    raise KeyError(name)


def folder_names(folder: str) -> set[str]:
    return {path.stem for path in (HERE / folder).iterdir() if path.stem != "README"}


def arrays_of(path: Path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as file:
        return dict(file)


def double(array: np.ndarray) -> torch.Tensor:
    return torch.as_tensor(array).double()


def flat(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().double().contiguous().numpy().reshape(-1)


def unpadded(ids: np.ndarray) -> list[int]:
    return ids[ids >= 0].tolist()


def in_order(batches) -> list[int]:
    """The ids of an epoch's batches, each where it first comes."""
    return list(dict.fromkeys(image for ids in batches for image in unpadded(ids)))


# HFC, DyTox

HFC_NAMES = {
    r"^token$": "shared_embedding",
    r"^tsp\.attn\.q\.": "tsa.0.query.",
    r"^tsp\.attn\.k\.": "tsa.0.key.",
    r"^tsp\.attn\.v\.": "tsa.0.value.",
    r"^tsp\.attn\.proj\.": "tsa.0.project.",
    r"^tsp\.": "tsa.0.",
    r"adaptmlp\.(down|up)_proj": r"adapter.\1",
}
DYTOX_NAMES = {
    r"^sabs\.": "encoder.blocks.",
    r"^(patch_embed|pos_embed)": r"encoder.\1",
    r"^tabs\.0\.attn\.q\.": "head.block.query.",
    r"^tabs\.0\.attn\.k\.": "head.block.key.",
    r"^tabs\.0\.attn\.v\.": "head.block.value.",
    r"^tabs\.0\.attn\.proj\.": "head.block.project.",
    r"^tabs\.0\.": "head.block.",
    r"^task_tokens\.": "head.tokens.",
    r"^head\.(\d+)\.head\.": r"head.heads.\1.linear.",
    r"^head\.(\d+)\.norm\.": r"head.heads.\1.norm.",
    r"^head_div\.head\.": "head.divergence.linear.",
    r"^head_div\.norm\.": "head.divergence.norm.",
}


def renamed(name: str, names: dict[str, str]) -> str:
    for pattern, ours in names.items():
        name, found = re.subn(pattern, ours, name)
        if found and pattern.startswith("^"):
            break
    return name


def norm_and_ramp(tensor: torch.Tensor) -> np.ndarray:
    values = flat(tensor)
    ramp = np.linspace(-1, 1, len(values)) if len(values) > 1 else np.ones(1)
    return np.array([np.sqrt(values @ values), values @ ramp])


def hfc_or_dytox(folder: Path, name: str) -> Recording:
    given, out = (arrays_of(folder / name / f"{part}.npz") for part in ("inputs", "outputs"))
    settings = json.loads((folder / name / "settings.json").read_text())
    per_step = settings["settings"]["per_step"]
    ends = np.cumsum(per_step)
    dytox = name == "dytox"
    names = DYTOX_NAMES if dytox else HFC_NAMES
    tuning = given.get("update_is_tuning", np.zeros(len(given["batches"]), dtype=bool))
    of_step = given["update_step"]
    epochs = given.get("update_epoch")
    if epochs is None:  # the paper's loop: as many updates in each epoch of a step
        epochs = np.concatenate(
            [np.arange(n) // (n // settings["settings"]["epochs"]) for n in np.bincount(of_step)]
        )
    keys = [
        (int(step), "tune" if tuned else "train", int(epoch))
        for step, tuned, epoch in zip(of_step, tuning, epochs, strict=True)
    ]
    orders = {
        key: in_order(given["batches"][u] for u, _ in places)
        for key, places in groupby(enumerate(keys), lambda place: place[1])
    }
    terms = ("classification", "distillation", "divergence") if dytox else ("loss", "L_FC", "L_RD")
    updates = []
    for u, (step, phase, epoch) in enumerate(keys):
        suffix, row = (f"_{step}", u - keys.index((step, "train", 0))) if dytox else ("", u)
        tensors = settings["tensors"][step] if dytox else settings["tensors"]
        columns = {renamed(tensor, names): i for i, tensor in enumerate(tensors)}
        norm, ramp = out["weight_norm" + suffix][row], out["weight_ramp" + suffix][row]
        gradients = out.get("grad_norm" + suffix)
        rates = out["lr"][u] if "lr" in out else settings["settings"]["lr"]
        updates.append(
            Update(
                step=step,
                phase=phase,
                epoch=epoch,
                terms={
                    term: float(out[term][u])
                    for term in terms
                    if term in out and not np.isnan(out[term][u])
                },
                rates=np.atleast_1d(rates).tolist(),
                weights={tensor: np.array([norm[i], ramp[i]]) for tensor, i in columns.items()},
                gradients={}
                if gradients is None
                else {tensor: gradients[row][[i]] for tensor, i in columns.items()},
            )
        )
    accuracy = [percent / 100 for percent in out.get("accuracy", [])] or [None] * len(per_step)
    steps = [
        Step(
            exemplars=out[f"exemplars_{t}"].tolist(),
            accuracy=accuracy[t],
            values={"head": out[f"probe_logits_{t}"]},
        )
        for t in range(len(per_step))
    ]
    return Recording(
        name=name,
        arrays=given,
        settings=settings["settings"],
        train=(double(given["images"]), torch.as_tensor(given["labels"]).long()),
        test=(
            double(given.get("test_images", given["images"])),
            torch.as_tensor(given.get("test_labels", given["labels"])).long(),
        ),
        probe=double(given["probe"]),
        classes=[list(range(end - n, end)) for n, end in zip(per_step, ends, strict=True)],
        checksums=norm_and_ramp,
        orders=orders,
        updates=updates,
        steps=steps,
    )


# iCaRL, BiC, PODNet, AFC of PODNet's authors

PLACES = {
    "loss": "loss",
    "nca": "classification",
    "flat": "pod_flat",
    "pod": "pod_spatial",
    "f_distil": "importance",
}


@cache
def wave(count: int) -> np.ndarray:
    return np.cos(np.arange(count))


def norm_sum_and_wave(tensor: torch.Tensor) -> np.ndarray:
    values = flat(tensor)
    return np.array([np.sqrt(values @ values), values.sum(), values @ wave(len(values))])


def normal_draws(seed: str, shape: tuple[int, ...]) -> torch.Tensor:
    state = np.random.RandomState(zlib.crc32(seed.encode()))
    return torch.from_numpy(state.standard_normal(shape))


def values_of(arrays: dict, t: int, step: dict) -> dict[str, np.ndarray]:
    """What a step left: logits, with BiC's pair in the newest columns; η; AFC's importance."""
    logits = arrays[f"probe_logits_{t}"]
    values = {"head": logits, "nearest": arrays[f"nme_scores_{t}"], "corrected": logits.copy()}
    if step["bias"]:
        alpha, beta = step["bias"]
        values["corrected"][:, -2:] = alpha * logits[:, -2:] + beta
    if step["scale"]:
        values["scale"] = np.array([step["scale"]])
    names = sorted(name for name in arrays if name.startswith(f"importance_{t}_"))
    return values | {"importance": np.concatenate([arrays[name] for name in names] or [[]])}


def of_podnets_authors(folder: Path, name: str) -> Recording:
    told = json.loads((folder / f"{name}.json").read_text())
    arrays, data = arrays_of(folder / f"{name}.npz"), arrays_of(folder / "data.npz")

    def images(part):
        pixels = double(data[f"{part}_images"]).permute(0, 3, 1, 2) / 255
        return pixels.contiguous(), torch.as_tensor(data[f"{part}_labels"]).long()

    batch_size, keys = told["run"]["batch_size"], []
    for order in told["orders"]:
        num_batches = -(-len(order["images"]) // batch_size)
        if order["phase"] != "importance":
            keys += [(order["step"], order["phase"], order["epoch"])] * num_batches
    updates = []
    for u, (key, update) in enumerate(zip(keys, told["updates"], strict=True)):
        weights, gradients = (
            {tensor: arrays[kind][u, i] for i, tensor in enumerate(told["tensors"])}
            for kind in ("weights", "gradients")
        )
        terms = update["terms"] if key[1] == "train" else {"nca": update["terms"]["nca"]}
        updates.append(
            Update(
                *key,
                terms={PLACES.get(term, term): value for term, value in terms.items()},
                rates=[group["lr"] for group in update["groups"]],
                weights=weights,
                gradients=gradients,
            )
        )
    test = images("test")
    return Recording(
        name=name,
        arrays=arrays,
        settings=told["run"],
        train=images("train"),
        test=test,
        probe=test[0],
        classes=[[0, 1], [2, 3], [4, 5]],
        checksums=norm_sum_and_wave,
        orders={(o["step"], o["phase"], o["epoch"]): o["images"] for o in told["orders"]},
        updates=updates,
        steps=[
            Step(
                exemplars=[image for ids in step["exemplars"].values() for image in ids],
                accuracy=step["accuracy"],
                values=values_of(arrays, t, step),
            )
            for t, step in enumerate(told["steps"])
        ],
    )


# FOSTER, SS-IL, PODNet with CSCCT

TERMS = {
    ("foster", "train"): ("classification", "auxiliary", "distillation"),
    ("foster", "compress"): ("compression",),
    ("podnet_cscct", "train"): (
        "classification",
        "pod_flat",
        "pod_spatial",
        "clustering",
        "transfer",
    ),
    ("podnet_cscct", "tune"): ("classification",),
}


@cache
def hashed(count: int, key: int) -> np.ndarray:
    """2u - 1 of each index, with u from an integer hash of index and key."""
    x = (np.arange(count, dtype=np.uint64) + np.uint64(key * 0x9E3779B9 % 2**32)) % 2**32
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x ^= x >> np.uint64(shift)
        x = x * np.uint64(factor) % 2**32
    return 2 * ((x ^ (x >> np.uint64(16))) / 2**32) - 1


def norm_and_hash(tensor: torch.Tensor) -> np.ndarray:
    values = flat(tensor)
    return np.array([np.sqrt(values @ values), values @ hashed(len(values), 77)])


def block_name(found: re.Match) -> str:
    """A tensor of a ResNet-32's block: their stages, of which the last may stand alone; our row."""
    stage, block, part = found["stage"], found["block"], found["part"]
    number = 3 * BLOCKS - 1 if block is None else BLOCKS * (int(stage) - 1) + int(block)
    return f"blocks.{number}." + re.sub("_([ab])", lambda x: "12"["ab".index(x[1])], part)


def resnet32_name(name: str) -> str:
    name = re.sub(r"^conv_1_3x3\.", "stem.0.", name)
    name = re.sub(r"^bn_1\.", "stem.1.", name)
    blocks = r"stage_(?P<stage>\d)\.(?:blocks\.)?(?:(?P<block>\d+)\.)?(?P<part>(?:bn|conv)_.*)"
    return re.sub(blocks, block_name, name)


def our_name(method: str, phase: str, step: int, name: str) -> str | None:
    """Our name of a tensor; None for what is not trained, or not there."""
    if method == "ssil":
        return re.sub(r"^fc\.", "head.", name) if name.startswith("fc.") else f"backbone.{name}"
    if method == "podnet_cscct":
        name = name.replace("post_processor.factor", "head.scale")
        return resnet32_name(name.removeprefix("convnet."))
    newest = int(phase == "train" and step > 0)
    if re.match(r"convnets\.\d\.fc\.|oldfc\.", name) or (phase == "compress" and "fe_fc" in name):
        return None
    if name.startswith("convnets.") and not name.startswith(f"convnets.{newest}."):
        return None  # the frozen extractor of the step before
    if name.startswith("fe_fc."):
        return name.replace("fe_fc", "head.single") if step else None
    if name.startswith("fc."):
        return name.replace("fc", "head.boosted" if newest else "head.single")
    return resnet32_name(name.removeprefix(f"convnets.{newest}."))


def of_ssil(terms: list[float], batch_size: int) -> dict[str, float]:
    """Our two terms, from sums over new and over replayed images and a term of each old step."""
    named = {"classification": sum(terms[:2]) / batch_size}
    return named | ({"distillation": sum(terms[2:])} if len(terms) > 1 else {})


def reaches_an_update(phase: str, tensor: str) -> bool:
    """Whether a gradient is used: their tuning computes those of all, and trains the proxies."""
    return phase != "tune" or tensor.startswith("classifier.")


def of_three_authors(folder: Path, name: str) -> Recording:
    told = json.loads((folder / f"{name}.json").read_text())
    arrays, data = arrays_of(folder / f"{name}.npz"), arrays_of(folder / "data.npz")
    mean, std = np.array([0.5071, 0.4867, 0.4408]), np.array([0.2675, 0.2565, 0.2761])

    def images(part):
        pixels = double((data[f"{part}_x"] / 255 - mean) / std).permute(0, 3, 1, 2)
        return pixels.contiguous(), torch.as_tensor(data[f"{part}_y"]).long()

    train, test = images("train"), images("test")
    orders, updates = {}, []
    for phase in told["phases"]:
        key, prefix = (phase["step"], phase["phase"]), phase["name"]
        part = {
            field: arrays[f"{prefix}/{field}"]
            for field in ("ids", "epoch", "lr", "terms", "weight_norm", "weight_dot", "grad_norm")
        }
        part["epoch"] = part["epoch"] - part["epoch"].min()
        new = slice(0, told["settings"]["batch"])
        for epoch in np.unique(part["epoch"]):
            of_epoch = part["epoch"] == epoch
            orders[*key, int(epoch)] = in_order(part["ids"][of_epoch, new])
            if part["ids"].shape[1] > new.stop:
                orders[*key, int(epoch), "replay"] = part["ids"][of_epoch, new.stop :].ravel()
        columns = [our_name(name, *reversed(key), tensor) for tensor in phase["weight_names"]]
        of_gradients = [our_name(name, *reversed(key), tensor) for tensor in phase["grad_names"]]
        for u in range(phase["updates"]):
            terms = part["terms"][u].tolist()
            updates.append(
                Update(
                    *key,
                    epoch=int(part["epoch"][u]),
                    terms=of_ssil(terms, part["ids"].shape[1])
                    if name == "ssil"
                    else dict(zip(TERMS[name, key[1]], terms, strict=False)),
                    rates=[float(part["lr"][u])],
                    weights={
                        tensor: np.array([part["weight_norm"][u, i], part["weight_dot"][u, i]])
                        for i, tensor in enumerate(columns)
                        if tensor
                    },
                    gradients={
                        tensor: part["grad_norm"][u, [i]]
                        for i, tensor in enumerate(of_gradients)
                        if tensor and reaches_an_update(key[1], tensor)
                    },
                )
            )
    return Recording(
        name=name,
        arrays=arrays,
        settings=told["settings"],
        train=train,
        test=test,
        probe=torch.cat([train[0][::9], test[0][::3]]),
        classes=[[0, 1, 2], [3, 4, 5], [6, 7, 8]],
        checksums=norm_and_hash,
        orders=orders,
        updates=updates,
        steps=[
            Step(
                exemplars=step["exemplars"],
                accuracy=step.get("acc", step.get("acc_boosted")),
                values={
                    field.split("/")[1]: arrays[field]
                    for field in arrays
                    if field.startswith(f"probe_{t}/")
                },
            )
            for t, step in enumerate(told["steps"].values())
        ],
    )


FOLDERS = {
    "hfc_dytox": hfc_or_dytox,
    "icarl_bic_podnet_afc": of_podnets_authors,
    "foster_ssil_cscct": of_three_authors,
}
