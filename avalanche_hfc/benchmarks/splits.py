"""Data sets split by class into steps, as benchmarks of Avalanche.

All functions take the same arguments and leave the global random generators as they are.
"""

from pathlib import Path

from avalanche_hfc.benchmarks.orders import imagenet100_synsets, imagenet_synsets
from avalanche_hfc.benchmarks.scenario import (
    ClassOrder,
    Plan,
    SplitBenchmark,
    make_benchmark,
    steps_asked,
)
from avalanche_hfc.benchmarks.sources import (
    read_cifar100,
    read_digits,
    read_folder,
    read_imagenet,
    read_npz,
)


def split_cifar100(
    root: Path | str | None = None,
    *,
    num_steps: int | None = None,
    n_experiences: int | None = None,
    base_fraction: int | float = 0.0,
    class_order: ClassOrder = "paper",
    transforms: str = "dytox",
    image_size: int | None = None,
    seed: int = 0,
    download: bool = False,
) -> SplitBenchmark:
    """Split CIFAR-100, with images of 3 x 32 x 32, by class.

    Args:
        root: The folder with cifar-100-python/. By default Avalanche's folder for data.
        num_steps: Number of steps, with equally many classes; a base step is not counted.
        n_experiences: Number of experiences, to be given instead of `num_steps`; a base step is
            counted.
        base_fraction: 0, or 0.5 for a base step with half of the classes before the `num_steps`
            others.
        class_order: ``"paper"`` for cifar100-a, the order of the paper; another key of
            `CLASS_ORDERS`; a sequence of all class ids or all class names; or None for a random
            order drawn by `seed`.
        transforms: A key of `TRANSFORMS`.
        image_size: Side of the images in pixels. By default 32, or 224 with ``"official"``.
        seed: Seed of a random class order; not used otherwise.
        download: Download the data into `root` if it is not there.

    Returns:
        The benchmark. Labels are class ids; `class_names` and `image_shape` are attributes.

    Raises:
        ValueError: If the data cannot be found or read, or a value is not allowed.
    """
    plan = Plan(
        steps_asked(num_steps, n_experiences, base_fraction),
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
    num_steps: int | None = None,
    n_experiences: int | None = None,
    base_fraction: int | float = 0.0,
    class_order: ClassOrder = "paper",
    transforms: str = "dytox",
    image_size: int | None = None,
    seed: int = 0,
    download: bool = False,
) -> SplitBenchmark:
    """Split ImageNet-100, the first 100 synsets of ImageNet, by class.

    Args:
        root: The folder with train/<synset>/ and val/<synset>/, of these 100 synsets or of all
            1000.
        num_steps: Number of steps, with equally many classes; a base step is not counted.
        n_experiences: Number of experiences, to be given instead of `num_steps`; a base step is
            counted.
        base_fraction: 0, or 0.5 for a base step with half of the classes before the `num_steps`
            others.
        class_order: ``"paper"`` for imagenet100, the order of the paper; another key of
            `CLASS_ORDERS`; a sequence of all class ids or all class names; or None for a random
            order drawn by `seed`.
        transforms: A key of `TRANSFORMS`.
        image_size: Side of the images in pixels. By default 224.
        seed: Seed of a random class order; not used otherwise.
        download: Must be False: ImageNet cannot be downloaded without an account.

    Returns:
        The benchmark. Labels are class ids; `class_names` and `image_shape` are attributes.

    Raises:
        ValueError: If the data cannot be found or read, or a value is not allowed.
    """
    plan = Plan(
        steps_asked(num_steps, n_experiences, base_fraction),
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
    num_steps: int | None = None,
    n_experiences: int | None = None,
    base_fraction: int | float = 0.0,
    class_order: ClassOrder = "paper",
    transforms: str = "dytox",
    image_size: int | None = None,
    seed: int = 0,
    download: bool = False,
) -> SplitBenchmark:
    """Split ImageNet-1000 (ILSVRC 2012) by class.

    Args:
        root: The folder with train/<synset>/ and val/<synset>/.
        num_steps: Number of steps, with equally many classes; a base step is not counted.
        n_experiences: Number of experiences, to be given instead of `num_steps`; a base step is
            counted.
        base_fraction: 0, or 0.5 for a base step with half of the classes before the `num_steps`
            others.
        class_order: ``"paper"`` for imagenet1000, the order of the paper; another key of
            `CLASS_ORDERS`; a sequence of all class ids or all class names; or None for a random
            order drawn by `seed`.
        transforms: A key of `TRANSFORMS`.
        image_size: Side of the images in pixels. By default 224.
        seed: Seed of a random class order; not used otherwise.
        download: Must be False: ImageNet cannot be downloaded without an account.

    Returns:
        The benchmark. Labels are class ids; `class_names` and `image_shape` are attributes.

    Raises:
        ValueError: If the data cannot be found or read, or a value is not allowed.
    """
    plan = Plan(
        steps_asked(num_steps, n_experiences, base_fraction),
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
    num_steps: int | None = None,
    n_experiences: int | None = None,
    base_fraction: int | float = 0.0,
    class_order: ClassOrder = None,
    transforms: str = "plain",
    image_size: int | None = None,
    seed: int = 0,
    download: bool = False,
) -> SplitBenchmark:
    """Split the 1797 handwritten digits that come with scikit-learn, of 1 x 8 x 8, by class.

    The test images are the second of each class, in the order of the data, and every fifth after
    it.

    Args:
        root: Must be None: the images are part of scikit-learn.
        num_steps: Number of steps, with equally many classes; a base step is not counted.
        n_experiences: Number of experiences, to be given instead of `num_steps`; a base step is
            counted.
        base_fraction: 0, or 0.5 for a base step with half of the classes before the `num_steps`
            others.
        class_order: A sequence of all class ids or all class names, a key of `CLASS_ORDERS`, or
            None for a random order drawn by `seed`.
        transforms: A key of `TRANSFORMS`.
        image_size: Side of the images in pixels. By default 8, or 224 with ``"official"``.
        seed: Seed of a random class order; not used otherwise.
        download: Not used.

    Returns:
        The benchmark. Labels are class ids; `class_names` and `image_shape` are attributes.

    Raises:
        ValueError: If a value is not allowed.

    Example:
        >>> from avalanche_hfc.benchmarks import split_digits
        >>> benchmark = split_digits(num_steps=5, seed=0)
        >>> [sorted(step.classes_in_this_experience) for step in benchmark.train_stream][:2]
        [[2, 8], [4, 9]]
    """
    num_steps = steps_asked(num_steps, n_experiences, base_fraction)
    plan = Plan(num_steps, base_fraction, class_order, transforms, image_size, seed, num_classes=10)
    if root is not None:
        raise ValueError(
            f"split_digits reads scikit-learn's own images: root must be None, got {str(root)!r}."
        )
    return make_benchmark(read_digits(), plan)


def split_npz(
    root: Path | str | None = None,
    *,
    num_steps: int | None = None,
    n_experiences: int | None = None,
    base_fraction: int | float = 0.0,
    class_order: ClassOrder = None,
    transforms: str = "plain",
    image_size: int | None = None,
    seed: int = 0,
    download: bool = False,
) -> SplitBenchmark:
    """Split your images in an npz file by class.

    The file has the arrays x_train, y_train, x_test, y_test and, optionally, class_names. Images
    have the shape (n, h, w, 3) or (n, h, w), as uint8 or as floats in [0, 1]; gray images become
    RGB. Labels are 0 to C - 1. The file is read without pickle. Steps may differ by one class, the
    larger ones first; half of an odd number of classes is rounded up.

    Args:
        root: The npz file.
        num_steps: Number of steps; a base step is not counted.
        n_experiences: Number of experiences, to be given instead of `num_steps`; a base step is
            counted.
        base_fraction: 0, or 0.5 for a base step with half of the classes before the `num_steps`
            others.
        class_order: A sequence of all class ids or all class names, a key of `CLASS_ORDERS`, or
            None for a random order drawn by `seed`.
        transforms: A key of `TRANSFORMS`.
        image_size: Side of the images in pixels. By default that of the images, or 224 with
            ``"official"``.
        seed: Seed of a random class order; not used otherwise.
        download: Must be False: the file must be on disk.

    Returns:
        The benchmark. Labels are class ids; `class_names` and `image_shape` are attributes.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file cannot be read or trained on, or a value is not allowed.
    """
    num_steps = steps_asked(num_steps, n_experiences, base_fraction)
    plan = Plan(num_steps, base_fraction, class_order, transforms, image_size, seed, uneven=True)
    _refuse_download(download, "an npz file", "must be on disk")
    return make_benchmark(read_npz(_needed(root, "the npz file")), plan)


def split_folder(
    root: Path | str | None = None,
    *,
    num_steps: int | None = None,
    n_experiences: int | None = None,
    base_fraction: int | float = 0.0,
    class_order: ClassOrder = None,
    transforms: str = "plain",
    image_size: int | None = None,
    seed: int = 0,
    download: bool = False,
    skip_bad: bool = False,
) -> SplitBenchmark:
    """Split your images in a folder by class.

    The class ids follow the sorted names of the class folders. If there are only class folders, the
    second image of each class, by sorted path, and every fifth after it are test images. Every
    image is decoded once before training. Hidden files and those that operating systems leave
    behind are skipped. Steps may differ by one class, the larger ones first; half of an odd number
    of classes is rounded up.

    Args:
        root: The folder with train/<class>/ and test/<class>/ (or val/<class>/), or with <class>/.
        num_steps: Number of steps; a base step is not counted.
        n_experiences: Number of experiences, to be given instead of `num_steps`; a base step is
            counted.
        base_fraction: 0, or 0.5 for a base step with half of the classes before the `num_steps`
            others.
        class_order: A sequence of all class ids or all class names, a key of `CLASS_ORDERS`, or
            None for a random order drawn by `seed`.
        transforms: A key of `TRANSFORMS`.
        image_size: Side of the images in pixels. By default 224.
        seed: Seed of a random class order; not used otherwise.
        download: Must be False: the images must be on disk.
        skip_bad: Leave out files that are not readable images, instead of raising an error.

    Returns:
        The benchmark. Labels are class ids; `class_names` and `image_shape` are attributes.

    Raises:
        FileNotFoundError: If there is no such folder.
        ValueError: If the folder cannot be trained on, with every reason, or a value is not
            allowed.
    """
    num_steps = steps_asked(num_steps, n_experiences, base_fraction)
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
