"""A whole training step of iCaRL with ResNet-32 in each form of the arithmetic: images a second."""

import math
from collections.abc import Callable, Iterator
from typing import Any

from avalanche_hfc.lab import override, recipe
from avalanche_hfc.lab.build import build_model, build_strategy
from avalanche_hfc.lab.plan import shortened_recipe, synthetic_data, trial_benchmark
from experiments.benches.hardware import epoch
from experiments.benches.timing import Row, side_by_side
from experiments.benches.training import DuringStep

NAME = "cifar100-b0-t10-icarl-resnet32@paper"
BATCHES = 2  # new ones; as many of exemplars join them
LAST, BFLOAT16, COMPILE = (
    {"train.channels_last": "true"},
    {"train.precision": "bfloat16"},
    {"train.compile": "true"},
)
FORMS: dict[str, dict[str, str]] = {
    "float32": {},
    "channels last": LAST,
    "compile": COMPILE,
    "bfloat16": BFLOAT16,
    "bfloat16, channels last": BFLOAT16 | LAST,
    "bfloat16, channels last, compile": BFLOAT16 | LAST | COMPILE,
}
PLAIN, *OTHERS = FORMS
WITH_TARGET = OTHERS[-2:]


def rows() -> Iterator[Row]:
    """Every form against float32, which is measured in turns with all of them."""
    rates: dict[str, float] = {}

    def measure(strategies: dict[str, Any]) -> None:
        works = {name: lambda s=strategy: epoch(s) for name, strategy in strategies.items()}
        images = len(next(iter(strategies.values())).adapted_dataset)
        seconds = side_by_side(works, repeats=5, warm_up=2)
        rates.update({name: images / spent for name, spent in seconds.items()})

    in_second_step(dict(FORMS), {}, measure)
    for name in OTHERS:
        target, lower = ("≥ 2", 2.0) if name in WITH_TARGET else ("none", 0.0)
        yield Row(
            f"iCaRL training step, ResNet-32, b = 128: {name}", PLAIN,
            rates[name], rates[PLAIN], "images/s", target, math.inf, lower=lower,
        )  # fmt: skip


def in_second_step(
    left: dict[str, dict[str, str]],
    standing: dict[str, Any],
    measure: Callable[[dict[str, Any]], None],
) -> None:
    """Call `measure` with a strategy of each form that stands in its second step, with a teacher
    and exemplars.
    """
    if not left:
        measure(standing)
        return
    name, *others = left
    own = shortened_recipe(override(recipe(NAME), left[name]))
    benchmark = trial_benchmark(own, synthetic_data(own)[0], BATCHES)

    def work(strategy: Any) -> None:
        rest = {other: left[other] for other in others}
        in_second_step(rest, {**standing, name: strategy}, measure)

    strategy: Any = build_strategy(own, build_model(own), plugins=[DuringStep(work)])
    for experience in benchmark.train_stream:
        strategy.train(experience)
