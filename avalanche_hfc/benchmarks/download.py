"""Data sets that can be downloaded."""

from pathlib import Path

from avalanche.benchmarks.datasets.dataset_utils import default_dataset_location
from torchvision.datasets import CIFAR100


def download_cifar100(root: Path | str | None = None) -> Path:
    """Download CIFAR-100 with its md5 sums checked; files that are there are only checked.

    Args:
        root: Where to put it. By default Avalanche's folder for data, where `split_cifar100` and
            the recipes look for it.

    Returns:
        The folder to give as `root` or `--data`.

    Raises:
        ConnectionError: If it cannot be downloaded, or the sum is wrong.
    """
    folder = Path(root) if root is not None else Path(default_dataset_location("cifar100"))
    try:
        CIFAR100(folder, download=True)
    except (OSError, RuntimeError) as error:  # of the network; of a sum that is wrong
        why = str(error).splitlines()[0].rstrip(".")
        raise ConnectionError(
            f"CIFAR-100 cannot be downloaded from {CIFAR100.url} ({why}). Put {CIFAR100.filename} "
            f"into {folder} and use the same command: it is checked and unpacked."
        ) from error
    return folder
