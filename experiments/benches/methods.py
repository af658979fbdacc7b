"""One training step of every method, relative to fine-tuning's, beside the floor that its
arithmetic implies.
"""

import copy
from collections.abc import Iterator
from typing import Any

import torch
from avalanche.training.plugins import EvaluationPlugin

from avalanche_hfc.models import DyToxModel, ViTEncoder
from avalanche_hfc.plugins.teacher import FrozenTeacher
from avalanche_hfc.strategies import STRATEGIES
from experiments.benches.timing import Row, side_by_side
from experiments.benches.training import DuringStep, benchmark, vit

OURS = [name for name in STRATEGIES if not name.startswith("avalanche-")]
REPEATS = 5


def rows() -> Iterator[Row]:
    for name in OURS:
        for losses in ("host", "hfc") if name not in ("hfc", "joint") else (None,):
            yield row_of(name, losses)


def model_of(name: str) -> torch.nn.Module:
    if name != "dytox":
        return vit()
    options = dict(embed_dim=128, num_heads=4)
    return DyToxModel(
        ViTEncoder(
            "vit_tiny_patch16_224",
            image_size=32,
            patch_size=4,
            msa_blocks=4,
            backbone_options=options,
        )
    )


def build(kind: str, name: str, work: Any, **options: Any) -> Any:
    model = model_of(name)
    return STRATEGIES[kind](
        model=model,
        optimizer=torch.optim.AdamW(model.parameters(), 1e-3),
        train_mb_size=64,
        train_epochs=1,
        eval_mb_size=64,
        evaluator=EvaluationPlugin(),
        plugins=[DuringStep(work)],
        **options,
    )


def row_of(name: str, losses: str | None) -> Row:
    """Both strategies stand in their second step and train on the same batches, in turns with the
    teacher's forward.
    """
    stream = benchmark(2, 112, 8).train_stream  # a step: 112 new images, 16 exemplars
    times: dict[str, float] = {}

    def with_finetuning(finetuning: Any) -> None:
        def measure(strategy: Any) -> None:
            finetuning.dataloader = strategy.dataloader
            teacher = copy.deepcopy(finetuning.model).eval().requires_grad_(False)
            works = {"ours": strategy.training_epoch, "finetuning": finetuning.training_epoch}
            works["forward"] = lambda: forward(teacher, strategy)
            times.update(side_by_side(works, repeats=REPEATS))
            times["teachers"] = FrozenTeacher.of(strategy).model is not None

        memory = {} if name in ("finetune", "joint") else {"mem_size": 16}
        short = {"tune_epochs": 1} if name in ("podnet", "podnet-cscct", "afc", "dytox") else {}
        train(
            build(
                name,
                name,
                measure,
                **memory,
                **short,
                **({} if losses is None else {"losses": losses}),
            ),
            stream,
        )

    train(build("finetune", name, with_finetuning), stream)
    floor = times["finetuning"] + times["teachers"] * times["forward"]
    form = "" if losses in (None, "host") else ", with both losses"
    return Row(
        f"training step of {name}{form}",
        "fine-tuning and a teacher's forward" if times["teachers"] else "fine-tuning",
        times["ours"] / times["finetuning"],
        floor / times["finetuning"],
        "× fine-tuning",
        "≤ 1.1",
        1.1,
    )


@torch.no_grad()
def forward(teacher: torch.nn.Module, strategy: Any) -> None:
    for x, *_ in strategy.dataloader:
        teacher(x)


def train(strategy: Any, stream: Any) -> None:
    for experience in stream:
        strategy.train(experience)
