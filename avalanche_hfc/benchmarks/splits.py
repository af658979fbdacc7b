"""The splits: a data set dealt out over steps by class, as Avalanche's `nc_benchmark` gives it. A
label is the original class id.

All take the same arguments.
`num_steps`: equal steps; with `base_fraction=0.5` a base step with half of the classes comes first
and is not counted. Steps of `split_npz` and `split_folder` may differ by one class, the larger
first, and half of an odd number of classes is rounded up.
`class_order`: "paper", a name of `CLASS_ORDERS`, all class ids or all class names in a sequence, or
None for a permutation drawn by `seed`, its only use.
`transforms`: a name of `TRANSFORMS`. `image_size=None`: 224 px with "official", else as the data
has it. The benchmark also carries `class_names`, indexed by class id, and `image_shape`. No global
random generator is touched.
"""

from pathlib import Path

from avalanche.benchmarks.scenarios.deprecated.new_classes import NCScenario

from avalanche_hfc.benchmarks._arrays import read_cifar100, read_digits, read_npz
from avalanche_hfc.benchmarks._folders import read_folder, read_imagenet
from avalanche_hfc.benchmarks._plan import ClassOrder, Plan, make_benchmark
from avalanche_hfc.benchmarks.orders import imagenet100_synsets, imagenet_synsets


def split_cifar100(
    root: Path | str | None = None,
    *,
    num_steps: int,
    base_fraction: int | float = 0.0,
    class_order: ClassOrder = "paper",
    transforms: str = "dytox",
    image_size: int | None = None,
    seed: int = 0,
    download: bool = False,
) -> NCScenario:
    """CIFAR-100, 3 x 32 x 32. `root` holds cifar-100-python/; None is Avalanche's folder for data.
    "paper" is cifar100-a.
    """
    plan = Plan(
        num_steps,
        base_fraction,
        class_order,
        transforms,
        image_size,
        seed,
        num_classes=100,
        paper_order="cifar100-a",
    )
    return make_benchmark(read_cifar100(root, download=download), plan)


def split_imagenet100(
    root: Path | str | None = None,
    *,
    num_steps: int,
    base_fraction: int | float = 0.0,
    class_order: ClassOrder = "paper",
    transforms: str = "dytox",
    image_size: int | None = None,
    seed: int = 0,
    download: bool = False,
) -> NCScenario:
    """The first 100 synsets of ImageNet, 224 px, from train/<synset>/ and val/<synset>/ in `root`:
    exactly these 100, or all 1000.
    """
    plan = Plan(
        num_steps,
        base_fraction,
        class_order,
        transforms,
        image_size,
        seed,
        num_classes=100,
        paper_order="imagenet100",
    )
    _refuse_download(download, "ImageNet", "needs an account at https://image-net.org")
    return make_benchmark(read_imagenet(root, imagenet100_synsets()), plan)


def split_imagenet1000(
    root: Path | str | None = None,
    *,
    num_steps: int,
    base_fraction: int | float = 0.0,
    class_order: ClassOrder = "paper",
    transforms: str = "dytox",
    image_size: int | None = None,
    seed: int = 0,
    download: bool = False,
) -> NCScenario:
    """ImageNet (ILSVRC 2012), 224 px, from train/<synset>/ and val/<synset>/ in `root`."""
    plan = Plan(
        num_steps,
        base_fraction,
        class_order,
        transforms,
        image_size,
        seed,
        num_classes=1000,
        paper_order="imagenet1000",
    )
    _refuse_download(download, "ImageNet", "needs an account at https://image-net.org")
    return make_benchmark(read_imagenet(root, imagenet_synsets()), plan)


def split_digits(
    root: None = None,
    *,
    num_steps: int,
    base_fraction: int | float = 0.0,
    class_order: ClassOrder = None,
    transforms: str = "plain",
    image_size: int | None = None,
    seed: int = 0,
    download: bool = False,
) -> NCScenario:
    """scikit-learn's 1797 digits, 10 classes, 1 x 8 x 8 in [-1, 1]. They come with scikit-learn: no
    `root`, nothing to download.

    The test images are the second of each class, in scikit-learn's order, and every fifth after it,
    whatever the seed.
    """
    plan = Plan(num_steps, base_fraction, class_order, transforms, image_size, seed, num_classes=10)
    if root is not None:
        raise ValueError(
            f"split_digits reads scikit-learn's own images: root must be None, got {str(root)!r}."
        )
    return make_benchmark(read_digits(), plan)


def split_npz(
    root: Path | str | None = None,
    *,
    num_steps: int,
    base_fraction: int | float = 0.0,
    class_order: ClassOrder = None,
    transforms: str = "plain",
    image_size: int | None = None,
    seed: int = 0,
    download: bool = False,
) -> NCScenario:
    """Your images in the arrays x_train, y_train, x_test, y_test [, class_names] of an npz file,
    read without pickle.

    Images are (n, h, w, 3) or (n, h, w), uint8 or float in [0, 1]; grey ones become RGB. Labels are
    0 to C - 1.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file cannot be read or trained on; the message begins with its name.
    """
    plan = Plan(num_steps, base_fraction, class_order, transforms, image_size, seed, uneven=True)
    _refuse_download(download, "an npz file", "must be on disk")
    return make_benchmark(read_npz(_needed(root, "the npz file")), plan)


def split_folder(
    root: Path | str | None = None,
    *,
    num_steps: int,
    base_fraction: int | float = 0.0,
    class_order: ClassOrder = None,
    transforms: str = "plain",
    image_size: int | None = None,
    seed: int = 0,
    download: bool = False,
    skip_bad: bool = False,
) -> NCScenario:
    """Your images, 224 px unless specified otherwise, from train/<class>/… and test/<class>/… (or
    val/) in `root`. Sorted names are class ids.

    A `root` of class folders alone is divided: by sorted path, the second image of each class and
    every fifth after it are test images. Every image is decoded once before training. Hidden files
    and those that operating systems leave behind are skipped.

    Args:
        skip_bad: Leave out files that are no readable images; otherwise they are an error.

    Raises:
        FileNotFoundError: There is no such folder.
        ValueError: The folder cannot be trained on; the message names every fault.
    """
    plan = Plan(num_steps, base_fraction, class_order, transforms, image_size, seed, uneven=True)
    _refuse_download(download, "a folder of images", "must be on disk")
    source = read_folder(_needed(root, "the folder of images"), skip_bad=skip_bad)
    return make_benchmark(source, plan)


def _needed(root: Path | str | None, what: str) -> Path | str:
    if root is None:
        raise ValueError(f"root must name {what}, got None.")
    return root


def _refuse_download(download: bool, what: str, why: str) -> None:
    if download:
        raise ValueError(f"download=True is for CIFAR-100 only: {what} {why}.")
