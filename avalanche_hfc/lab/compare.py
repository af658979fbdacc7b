"""Methods compared on your data: their recipes, the epochs that a time budget allows, and the size
of what they learned. No torch at the top.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from avalanche_hfc._names import counted
from avalanche_hfc.lab import Recipe, override, recipe
from avalanche_hfc.lab.names import Spec, check_spec
from avalanche_hfc.lab.options import ONE_PASS, UPPER_BOUNDS
from avalanche_hfc.lab.overrides import smallest_class, with_data
from avalanche_hfc.lab.rows import replace_file
from avalanche_hfc.lab.run_folder import RunFolder, as_json
from avalanche_hfc.lab.table import TableRun

if TYPE_CHECKING:
    from avalanche_hfc.lab.plan import Measured, Sizes

COMPARED = ("ncm", "ranpac", "frozen-replay", "herding-replay", "icarl", "podnet", "hfc")
MOST_EPOCHS = 50  # of a step, however long the time budget
PLANNED = 0.8  # of the time budget: timing varies, and the page takes time
NOTE = "compare.json"


def compared_recipes(
    data: Path | str, methods: Sequence[str], num_steps: int, *, skip_bad: bool = False
) -> list[Recipe]:
    """The recipes that compare methods on your data, at scale small: they differ in the method
    alone.

    Args:
        data: A folder of images or an npz file.
        methods: Names of methods, such as icarl, icarl+hfc or module:Class.
        num_steps: Number of steps.
        skip_bad: Leave out files that are no readable images.

    Returns:
        A recipe per method, in the order given.

    Raises:
        ValueError: A method is unknown or an upper bound, there are fewer than two methods, or
            fewer classes than steps.
        FileNotFoundError: The data does not exist.
    """
    dataset = "npz" if Path(data).suffix == ".npz" else "folder"
    recipes = []
    for method in dict.fromkeys(methods):
        row, losses = method.removesuffix("+hfc"), "hfc" if method.endswith("+hfc") else "host"
        spec = Spec(dataset, 0, num_steps, None, row, losses, "vit-base", "small")
        if row in UPPER_BOUNDS:
            raise ValueError(
                f"{row} trains on all classes at once: an upper bound, not a method to choose."
            )
        check_spec(spec)
        recipes.append(recipe(spec.name))
    if len(recipes) < 2:
        raise ValueError(f"A comparison needs at least two methods, got {', '.join(methods)}.")
    num_classes, _ = smallest_class(dataset, data)
    if not num_classes:
        raise ValueError(
            f"{data} holds no class folders. Put the images of each class into a folder of its "
            f"own: {Path(data) / 'CLASS' / 'image.jpg'}."
        )
    if num_classes < num_steps:
        allowed = f"--steps 2 to {num_classes}" if num_classes > 1 else "--steps 2 needs two"
        raise ValueError(
            f"{data} has {num_classes} class{'es' if num_classes > 1 else ''}, too few for "
            f"{num_steps} steps: {allowed}."
        )
    return [with_data(candidate, data, skip_bad=skip_bad) for candidate in recipes]


def with_weights(recipes: Sequence[Recipe], weights: str) -> list[Recipe]:
    """The recipes with networks that start from these weights.

    Args:
        recipes: A recipe per method.
        weights: A file, as `hfc pretrain` writes it, or a name of weights that ship with the
            package.

    Returns:
        The recipes, in the order given, with the geometry of the file.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: A network cannot take them.
    """
    from avalanche_hfc.lab.build import build_model

    changed = [override(candidate, {"model.weights": weights}) for candidate in recipes]
    for candidate in changed:
        build_model(candidate)  # looks at names and shapes
    return changed


def with_epochs(recipes: Sequence[Recipe], epochs: int) -> list[Recipe]:
    """The recipes with this number of epochs per step; methods that see each image once keep
    one.
    """
    return [
        candidate
        if candidate.method.name in ONE_PASS
        else override(candidate, {"train.epochs": str(epochs)})
        for candidate in recipes
    ]


def compared_runs(recipes: Sequence[Recipe], seeds: Sequence[int], out: Path) -> list[TableRun]:
    """A run of each recipe and seed, a seed of all recipes before the next."""
    return [
        TableRun(candidate, seed, out / "runs" / candidate.name / str(seed))
        for seed in seeds
        for candidate in recipes
    ]


# The time budget


@dataclass(frozen=True)
class TimeBudget:
    """How long all runs of a comparison take, by the number of epochs.

    Attributes:
        recipes: A recipe per method.
        measured: What a few timed batches tell of each method.
        sizes: The images of each step.
        num_seeds: Runs of each recipe.
        jobs: Runs at a time.
        overhead: Seconds that a run takes to read the data.
    """

    recipes: Sequence[Recipe]
    measured: Sequence["Measured"]
    sizes: "Sizes"
    num_seeds: int
    jobs: int = 1
    overhead: float = 0.0

    def seconds(self, epochs: int) -> float:
        """Of all runs, at most: the longest may start last, when the other jobs are done."""
        from avalanche_hfc.lab.plan import estimate

        pairs = zip(with_epochs(self.recipes, epochs), self.measured, strict=True)
        runs = [
            self.overhead + estimate(candidate, self.sizes, timing).seconds
            for candidate, timing in pairs
        ]
        longest = max(runs)
        return (self.num_seeds * sum(runs) - longest) / self.jobs + longest

    def epochs_within(self, minutes: float | int, *, spent: float | int = 0) -> int:
        """The largest number of epochs with which all runs finish in time.

        Args:
            minutes: The time budget.
            spent: Seconds of it that have passed.

        Returns:
            1 to `MOST_EPOCHS`.

        Raises:
            ValueError: The budget is too short for one epoch; with the shortest that is not.
        """
        left = PLANNED * (60 * minutes - spent)
        for epochs in range(MOST_EPOCHS, 0, -1):
            if self.seconds(epochs) <= left:
                return epochs
        needed = math.ceil((1.1 * self.seconds(1) / PLANNED + spent) / 60)  # timing varies
        raise ValueError(
            f"--minutes {minutes:g} is too short for one epoch of "
            f"{self.num_seeds * len(self.recipes)} runs: they need --minutes {needed}."
        )


class Work(NamedTuple):
    """What a comparison is asked to train."""

    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    steps: int
    jobs: int

    def within(self, planned: "Work") -> bool:
        """Whether it takes no longer than planned work."""
        return (
            set(self.methods) <= set(planned.methods)
            and set(self.seeds) <= set(planned.seeds)
            and self.steps == planned.steps
            and self.jobs >= planned.jobs
        )

    def __str__(self) -> str:
        methods, seeds = (",".join(map(str, values)) for values in (self.methods, self.seeds))
        return f"--methods {methods} --seeds {seeds} --steps {self.steps} --jobs {self.jobs}"


def noted_epochs(out: Path, minutes: float | int | None, asked: Work) -> int | None:
    """The epochs that an earlier call chose for the same time budget; None if there was none.

    Args:
        out: The folder of the comparison.
        minutes: The time budget of this call.
        asked: What this call trains.

    Raises:
        ValueError: The comparison was started with another time budget or less work, or the note
            is damaged.
    """
    path = out / NOTE
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
        noted, epochs = float(held["minutes"]), int(held["epochs"])
        planned = Work(tuple(held["methods"]), tuple(held["seeds"]), held["steps"], held["jobs"])
    except FileNotFoundError:
        return None
    except (ValueError, LookupError, TypeError):
        raise ValueError(
            f"{path} is not the note of a comparison. Move it away, or choose another --out."
        ) from None
    instead = f"Choose another --out, or pass --epochs {epochs} in place of --minutes."
    if minutes != noted:
        now = "without it" if minutes is None else f"now {minutes:g}"
        raise ValueError(f"{out} was started with --minutes {noted:g}, {now}. {instead}")
    if not asked.within(planned):
        raise ValueError(
            f"{out}: --epochs {epochs} was chosen for --minutes {minutes:g} and {planned}; now "
            f"{asked}. {instead}"
        )
    return epochs


def note_epochs(out: Path, minutes: float, epochs: int, work: Work) -> None:
    """Keep the choice for the call that resumes the runs."""
    out.mkdir(parents=True, exist_ok=True)
    note = {"minutes": minutes, "epochs": epochs, **work._asdict()}
    replace_file(out / NOTE, as_json(note))


# What was learned


def comparable(
    runs: Sequence[TableRun], failed: Sequence[tuple[TableRun, str]]
) -> tuple[list[TableRun], dict[str, str]]:
    """The runs of the methods of which none failed, and why each of the others cannot be compared.

    Args:
        runs: All runs of a comparison.
        failed: Those that failed, with the reason.

    Returns:
        The runs that remain, and a reason for each method that is left out, by its name.
    """
    reasons = {
        method_label(run.recipe): f"seed {run.seed} failed: {said.splitlines()[-1]}"
        for run, said in reversed(failed)
    }
    return [run for run in runs if method_label(run.recipe) not in reasons], reasons


def few_epochs(recipes: Sequence[Recipe]) -> list[str]:
    """A remark on methods that were trained for fewer epochs than their recipes have by themselves;
    nothing if none was.
    """
    trained, usual = (
        max(candidate.train.epochs for candidate in some)
        for some in (recipes, [recipe(candidate.name) for candidate in recipes])
    )
    if trained >= usual:
        return []
    return [
        f"Methods that train by gradients had {counted(trained, 'epoch')} a step, fewer than the "
        f"{usual} of their recipes: with more time they may come out better."
    ]


def method_label(candidate: Recipe) -> str:
    """The method of a recipe of `compared_recipes` as a user writes it: icarl, or icarl+hfc."""
    return candidate.name.split("-", 3)[3].rpartition("@")[0]


def model_size(folder: Path) -> int | None:
    """Bytes of the weights with which a finished run predicts; None for a method that keeps
    none.
    """
    from avalanche_hfc.lab.trained_run import load_run

    if not has_weights(folder):
        return None
    tensors = load_run(folder, allow_code=True).model.state_dict().values()
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def has_weights(folder: Path) -> bool:
    """Whether a finished run can predict: Avalanche's own strategies keep no checkpoint."""
    return (RunFolder(folder).checkpoints / "last").is_dir()
