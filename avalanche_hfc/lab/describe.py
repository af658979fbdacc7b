"""What to know of a recipe before it runs: the command, the cost, what to expect, and the other
forms of HFC.
"""

import shlex
from collections.abc import Sequence

from avalanche_hfc.lab.options import LATER_EPOCHS, ON_ALL_SEEN, UPPER_BOUNDS, Value
from avalanche_hfc.lab.schema import Recipe
from avalanche_hfc.lab.settings import recipe as recipe_of
from avalanche_hfc.lab.tables import PAPER, SPECS, tables_of

CLASSES = {"cifar100": 100, "imagenet100": 100, "imagenet1000": 1000, "digits": 10}
IMAGES = {
    "cifar100": 500,
    "imagenet100": 1281,
    "imagenet1000": 1281,
    "digits": 144,
}  # of a class, in training
# Images trained on in a second, with a teacher. At scale paper a guess for one data-centre GPU;
# else measured on a core of a busy machine.
AT_32_PX = {
    "tsavit": 160,
    "vit": 160,
    "dytox": 130,
    "convit": 150,
    "resnet32": 200,
    "resnet18": 75,
}
RATES = {
    "paper": {
        "tsavit": 250,
        "vit": 250,
        "dytox": 200,
        "convit": 2500,
        "resnet32": 5000,
        "resnet18": 1200,
    },
    "small": AT_32_PX,
    "medium": AT_32_PX,
    "demo": {
        "tsavit": 1000,
        "vit": 1000,
        "dytox": 600,
        "convit": 650,
        "resnet32": 370,
        "resnet18": 75,
    },
}
HFC_FORMS: dict[str, dict[str, str]] = {  # of HFCStrategy; z is the share of old classes
    "default": {
        "classification": "(1 - z) L_FC",
        "relation": "z L_RD, targets that sum to 1, mean over the classes present",
        "herding": "greedy",
    },
    "paper": {
        "classification": "1 L_FC",
        "relation": "1 L_RD as printed: targets that sum to 2 for new classes, mean over the "
        "classes "
        "seen",
        "herding": "greedy",
    },
    "official": {
        "classification": "the released code's loss, weights inside",
        "relation": "inside it",
        "herding": "icarl-code",
    },
}


def command(recipe: Recipe, data_root: str | None = None, further: Sequence[str] = ()) -> str:
    """The command that runs it, with what the user has changed.

    Args:
        recipe: The recipe.
        data_root: Where the data is; by default a word that stands for it.
        further: Options of the command. Without any, the device of recipes of the paper is cuda.

    Returns:
        A line for a shell.
    """
    changed = [
        f"--{leaf.replace('_', '-')}={text_of(value)}" for leaf, value in recipe.overrides.items()
    ]
    file = recipe.data.dataset == "npz" or (
        recipe.data.dataset == "cifar100" and recipe.scale in ("small", "medium")
    )
    path = str(recipe.paths.get("data", data_root or ("FILE" if file else "FOLDER")))
    data = [] if recipe.data.dataset == "digits" else ["--data", path]
    skip = ["--skip-bad"] if recipe.paths.get("skip_bad") else []
    if not further and recipe.scale == "paper":
        further = ["--device", "cuda"]
    return shlex.join(["hfc", "run", recipe.base or recipe.name, *data, *skip, *further, *changed])


def text_of(value: Value) -> str:
    """A value as `override` reads it."""
    if isinstance(value, tuple):
        return "none" if not value else ",".join(str(part) for part in value)
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def sizes_of(recipe: Recipe) -> list[tuple[int, int]] | None:
    """(classes, training images) that each step brings; None for data whose size is not known."""
    data = recipe.data
    if data.dataset not in CLASSES:
        return None
    classes = data.num_classes or CLASSES[data.dataset]
    per_class = (data.train_per_class or IMAGES[data.dataset]) - (data.hold_out or 0)
    base = classes // 2 if data.base_fraction else 0
    arriving = [base] * bool(base) + [(classes - base) // data.num_steps] * data.num_steps
    return [(count, count * per_class) for count in arriving]


def phases_by_step(recipe: Recipe, sizes: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Images that pass through the main epochs of each step, and through its later phases;
    roughly.
    """
    train, memory = recipe.train, recipe.memory
    seen_classes = seen_images = 0
    by_step = []
    for step, (classes, arriving) in enumerate(sizes):
        kept = min(memory.mem_size or seen_classes * (memory.per_class or 0), seen_images)
        if recipe.method.name in ON_ALL_SEEN:
            kept = seen_images
        images = arriving + kept
        main = images * (train.first_epochs if step == 0 and train.first_epochs else train.epochs)
        later = 0
        seen_classes, seen_images = seen_classes + classes, seen_images + arriving
        exemplars = min(memory.mem_size or seen_classes * (memory.per_class or 0), seen_images)
        for name, epochs in later_epochs(recipe).items() if step else ():
            later += epochs * {"exemplars": exemplars, "all": images}[LATER_EPOCHS[name]]
        by_step.append((main, later))
    return by_step


def later_epochs(recipe: Recipe) -> dict[str, int]:
    """Epochs of each phase after the main one, from the second step on, by the option that counts
    them.
    """
    counts = {name: n for name, n in recipe.method.options if name in LATER_EPOCHS}
    return {name: n if isinstance(n, int) else recipe.train.epochs for name, n in counts.items()}


def cost(recipe: Recipe) -> str:
    """Time of one run, roughly."""
    sizes = sizes_of(recipe)
    if sizes is None:
        return "not known: it depends on the data"
    images = sum(map(sum, phases_by_step(recipe, sizes)))
    time = duration(images / RATES[recipe.scale][recipe.model.kind], places=0)
    guess = "one data-centre GPU, a guess that was not measured"
    where = guess if recipe.scale == "paper" else "one CPU core"
    return (
        f"about {time} on {where}: {images:,} images are trained on; evaluation and herding not "
        "counted"
    )


def duration(seconds: float, places: int = 1) -> str:
    """A time in words.

    Example:
        >>> duration(100.0), duration(7200.0)
        ('1.7 minutes', '2.0 hours')
    """
    if seconds > 5400:
        return f"{seconds / 3600:.1f} hours"
    unit, seconds = ("minutes", seconds / 60) if seconds > 90 else ("seconds", seconds)
    return f"{seconds:.{places}f} {unit}"


def expectation(recipe: Recipe) -> str:
    """Where the number to compare with stands."""
    spec = SPECS.get(recipe.name)
    if spec is None:
        return "no number of the paper: your data, method or protocol"
    tables = tables_of(recipe.name)
    if recipe.scale != "paper":
        return (
            "no number of the paper: other data, networks and budgets. It fills cells of "
            f"{', '.join(tables)}"
        )
    printed = [table for table in tables if table in PAPER]
    if not printed:
        return "no number of the paper: a row of ours on its protocol"
    where = f"row {spec.row}, losses {spec.losses}, backbone {spec.backbone}"
    measure = (
        "the last accuracy, printed under every T"
        if spec.row in UPPER_BOUNDS
        else "the average over steps; single run of the authors"
    )
    return f"experiments/paper.csv, table {', '.join(printed)}: {where}. It is {measure}"


def other_forms(recipe: Recipe) -> dict[str, dict[str, tuple[Value, Value]]]:
    """Name of another form of an HFC recipe -> the leaves that differ: (here, there). Empty for
    other methods.
    """
    spec = SPECS.get(recipe.name)
    if spec is None or spec.parts.method != "hfc":
        return {}
    leaves = recipe.leaves()
    forms = [spec._replace(row=row).name for row in ("hfc", "hfc-paper", "hfc-official")]
    return {
        name: {
            leaf: (leaves[leaf], value)
            for leaf, value in recipe_of(name).leaves().items()
            if leaves[leaf] != value
        }
        for name in forms
        if name in SPECS and name != recipe.name
    }
