"""Names of recipes.

    DATASET-bBASE-tSTEPS[-mEXEMPLARS][-VARIANT]-METHOD[+hfc][-BACKBONE]@SCALE

    cifar100-b0-t10-hfc@paper      cifar100-b50-t5-m20-podnet-cscct+hfc-resnet32@paper
    digits-b0-t5-baseline+tsa@demo

DATASET     cifar100, imagenet100, imagenet1000, digits; folder and npz are your data
BASE        0: equal steps; 50: a base step with half of the classes comes first
STEPS       the number of steps, the base step not counted
EXEMPLARS   of each class; left out: a total, that of the paper (2000; ImageNet-1000: 20000), 200
at scale small, 1000 at medium, 20 at demo
VARIANT     random (weights) or orders (the seed draws the class order); at scale small only
METHOD      a row of a table: one of METHODS, or baseline+tsa, baseline+gfc, baseline+grd,
baseline+tsa+gfc, hfc-paper, hfc-official; module:Class is your method
+hfc        with both losses of HFC put into the method
BACKBONE    resnet32, resnet18, convit (DyTox's encoder, the paper's "ViT-Tiny"); left out: a ViT,
ViT-Base at scale paper.
            resnet18 exists at scale paper only: resnet32 stands for it at scale demo
SCALE       paper, small, medium, demo

`Spec.name` writes a name. The tables name the recipes of the paper's and our experiments. For your
data and your method any name of this grammar is read, and all parts but the first may be left out:

    folder      folder-b0-t5-hfc@small, the same in full      npz-t4-podnet@demo
    folder-b50-t10-m20-mymethods:Mine@paper                   cifar100-t10-mymethods:Mine@small

`folder` is a folder of images as `split_folder` reads it, `npz` a file as `split_npz` reads it.
"""

import re
from difflib import get_close_matches
from typing import NamedTuple

from avalanche_hfc._names import lookup
from avalanche_hfc.lab.options import (
    CANNOT_RUN,
    METHODS,
    is_user_method,
    method_options,
    total_only,
    without_memory,
)

SCALES = {
    "paper": "the paper's data and models; a GPU",
    "small": "20 classes of CIFAR-100, a small pre-trained ViT; minutes on one core",
    "medium": "100 classes of CIFAR-100, the same ViT; half an hour on one core",
    "demo": "digits, tiny networks; seconds",
}
"""What each scale of recipes trains on, and how long a run takes."""
MEM_SIZES = {"small": 200, "medium": 1000}  # ten images of each class in the end
USER_DATA = ("folder", "npz")
DATA_SETS = {
    "paper": ("cifar100", "imagenet100", "imagenet1000"),
    "small": ("cifar100",),
    "medium": ("cifar100",),
    "demo": ("digits",),
}
BACKBONES = {  # as in experiments/paper.csv, and as in a name
    "vit-base": "",
    "resnet-32": "-resnet32",
    "resnet-18": "-resnet18",
    "vit-tiny": "-convit",
}
NAME = re.compile(
    r"(?P<dataset>[a-z0-9]+)(?:-b(?P<base>\d+))?(?:-t(?P<steps>\d+))?(?:-m(?P<per_class>\d+))?"
    r"(?:-(?P<row>.+?))??(?P<losses>\+hfc)?(?P<backbone>-resnet32|-resnet18|-convit)?(?:@(?P<scale>[^@]*))?"
)


class Row(NamedTuple):
    """A row of a table: the method, the ViT that it stands on where the backbone is one, its
    options that are not the defaults.
    """

    method: str
    vit: str = "vit"
    options: tuple[tuple[str, str], ...] = ()


ROWS = {
    "hfc": Row("hfc", "tsavit"),
    "hfc-paper": Row("hfc", "tsavit", (("form", "paper"),)),
    "hfc-official": Row("hfc", "tsavit", (("form", "official"),)),
    "baseline+tsa": Row("baseline", "tsavit"),
    "baseline+gfc": Row("baseline", "vit", (("losses", "gfc"),)),
    "baseline+grd": Row("baseline", "vit", (("losses", "grd"),)),
    "baseline+tsa+gfc": Row("baseline", "tsavit", (("losses", "gfc"),)),
    "dytox": Row("dytox", "dytox"),
}  # every other row is the method of that name on a plain ViT


class Spec(NamedTuple):
    """A recipe by what its name says. `backbone` is as in experiments/paper.csv."""

    dataset: str
    base_fraction: float | int
    num_steps: int
    per_class: int | None
    row: str
    losses: str
    backbone: str
    scale: str
    variant: str = ""  # a key of VARIANTS

    @property
    def name(self) -> str:
        losses = "+hfc" if self.losses == "hfc" else ""
        protocol = self.protocol(str(self.num_steps))
        return f"{protocol}-{self.row}{losses}{BACKBONES[self.backbone]}@{self.scale}"

    def protocol(self, num_steps: str) -> str:
        """The part of the name before the method, with this text for the number of steps."""
        memory = "" if self.per_class is None else f"-m{self.per_class}"
        variant = f"-{self.variant}" if self.variant else ""
        base = round(100 * self.base_fraction)
        return f"{self.dataset}-b{base}-t{num_steps}{memory}{variant}"

    @property
    def parts(self) -> Row:
        return ROWS.get(self.row, Row(self.row))

    @property
    def model(self) -> str:
        """The model, one of MODELS."""
        models = {"resnet-32": "resnet32", "resnet-18": "resnet18", "vit-tiny": "convit"}
        return models.get(self.backbone, self.parts.vit)


def read_name(name: str) -> Spec | None:
    """What a name says; None for a text of another form."""
    match = NAME.fullmatch(name)
    if match is None:
        return None
    backbones = {word: backbone for backbone, word in BACKBONES.items()}
    return Spec(
        dataset=match["dataset"],
        base_fraction=int(match["base"] or 0) / 100 or 0,
        num_steps=int(match["steps"] or 5),
        per_class=int(match["per_class"]) if match["per_class"] else None,
        row=match["row"] or "hfc",
        losses="hfc" if match["losses"] else "host",
        backbone=backbones[match["backbone"] or ""],
        scale=match["scale"] or "small",
    )


def user_spec(name: str) -> Spec | None:
    """What a name of your data or your method says; None for other names. A ValueError for one that
    cannot be trained.
    """
    spec = read_name(name)
    if spec is None or not (spec.dataset in USER_DATA or is_user_method(spec.row)):
        return None
    check_spec(spec)
    return spec


def check_spec(spec: Spec) -> None:
    """A ValueError unless your data or your method can be trained so."""
    lookup(SCALES, spec.scale, "scale")
    data_sets = dict.fromkeys((*USER_DATA, *DATA_SETS[spec.scale]))
    lookup(data_sets, spec.dataset, f"data set at scale {spec.scale}")
    if spec.base_fraction not in (0, 0.5):
        raise ValueError(
            f"{spec.name}: the base must be b0, equal steps, or b50, half of the classes."
        )
    rows = [row for row in dict.fromkeys([*METHODS, *ROWS]) if row not in CANNOT_RUN]
    if not is_user_method(spec.row) and spec.row not in rows:
        near = get_close_matches(spec.row, rows, n=2)
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        raise ValueError(
            f"Unknown method {spec.row!r}. Known: {', '.join(rows)}.{hint} Your own: module:Class."
        )
    method = spec.parts.method
    if spec.losses == "hfc" and "losses" not in method_options(method):
        raise ValueError(f"{method} does not take the losses of HFC: leave out +hfc.")
    if spec.per_class is not None and (without_memory(method) or total_only(method)):
        raise ValueError(
            f"{method} does not take a number of exemplars per class: leave out -m{spec.per_class}."
        )
