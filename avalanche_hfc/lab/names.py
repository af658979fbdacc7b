"""Names of recipes.

    DATASET-bBASE-tSTEPS[-mEXEMPLARS][-VARIANT]-METHOD[+hfc][-BACKBONE]@SCALE

    cifar100-b0-t10-hfc@paper      cifar100-b50-t5-m20-podnet-cscct+hfc-resnet32@paper
    digits-b0-t5-baseline+tsa@demo

DATASET     cifar100, imagenet100, imagenet1000, digits
BASE        0: equal steps; 50: a base step with half of the classes comes first
STEPS       the number of steps, the base step not counted
EXEMPLARS   of each class; left out: a total, that of the paper (2000; ImageNet-1000: 20000), 200
at scale small, 1000 at medium, 20 at demo
VARIANT     random (weights) or orders (the seed draws the class order); at scale small only
METHOD      a row of a table: one of METHODS, or baseline+tsa, baseline+gfc, baseline+grd,
baseline+tsa+gfc, hfc-paper, hfc-official
+hfc        with both losses of HFC put into the method
BACKBONE    resnet32, resnet18, convit (DyTox's encoder, the paper's "ViT-Tiny"); left out: a ViT,
ViT-Base at scale paper.
            resnet18 exists at scale paper only: resnet32 stands for it at scale demo
SCALE       paper, small, medium, demo

A name is written by `Spec.name` alone; reading one is finding it among those written.
"""

from typing import NamedTuple

# as paper.csv calls it: as a name does
BACKBONES = {
    "vit-base": "",
    "resnet-32": "-resnet32",
    "resnet-18": "-resnet18",
    "vit-tiny": "-convit",
}


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
    """A recipe by what its name says. `backbone` as in experiments/paper.csv."""

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
        return {
            "vit-base": self.parts.vit,
            "resnet-32": "resnet32",
            "resnet-18": "resnet18",
            "vit-tiny": "convit",
        }[self.backbone]
