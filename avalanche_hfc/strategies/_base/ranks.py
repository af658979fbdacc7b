"""What the ranks of one training must have in common: checked at the start and the end of a step,
their random draws before each epoch.
"""

import hashlib

import torch
from torch import nn

from avalanche_hfc._types import Strategy
from avalanche_hfc.parallel import agree, world
from avalanche_hfc.parallel.draws import generator_state


def check_ranks(strategy: Strategy) -> None:
    """Raise a ValueError before a step if the ranks cannot train together."""
    if not world().several:
        return
    check_batch(strategy.train_mb_size)
    data = strategy.experience.dataset
    agree("the training data", torch.as_tensor(list(data.targets)).numpy().tobytes())
    agree("the weights of the model", weights_digest(strategy.model))
    agree(
        "the state of torch's random generator: seed all ranks alike",
        generator_state(strategy.device),
    )


def check_draws(strategy: Strategy) -> None:
    """Raise a ValueError before an epoch if a rank has drawn more than the others: each draws the
    order of all images by itself.
    """
    if not world().several:
        return
    phase = strategy.phase_running
    epoch = strategy.clock.train_exp_epochs if phase is None else phase.epoch
    agree(
        f"the state of torch's random generator before epoch {epoch} of step "
        f"{strategy.clock.train_exp_counter} ({strategy.phase}), which a plugin must move on all "
        "ranks alike",
        generator_state(strategy.device),
    )


def check_batch(size: int) -> None:
    """Raise a ValueError if a global batch has fewer images than there are ranks."""
    if size < world().size:
        raise ValueError(
            f"A global batch of {size} images cannot be divided among {world().size} ranks. Use "
            f"at most {size} ranks, or a larger batch."
        )


def check_agreement(strategy: Strategy) -> None:
    """Raise a ValueError after a step if the ranks have trained apart."""
    if not world().several:
        return
    agree("the weights of the model", weights_digest(strategy.model))
    kept = {class_id: positions.tolist() for class_id, positions in strategy.exemplars().items()}
    agree("the exemplars in memory", repr(sorted(kept.items())))


def weights_digest(model: nn.Module) -> bytes:
    found = hashlib.sha256()
    for name, value in model.state_dict().items():
        if isinstance(value, torch.Tensor):
            found.update(name.encode())
            found.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return found.digest()
