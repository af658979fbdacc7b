"""How classes are dealt out: orders, steps, labels, transform groups and random state, on digits
and on a tiny CIFAR-100.
"""

import pickle
import random
import sys
from importlib import import_module

import numpy as np
import pytest
import torch
from avalanche.benchmarks import CLScenario, NCScenario, nc_benchmark
from sklearn.datasets import load_digits
from torchvision.datasets import CIFAR100, cifar

from avalanche_hfc.benchmarks import build_transforms, class_order, split_cifar100, split_digits
from avalanche_hfc.benchmarks.sources import read_digits

ORDER = [3, 7, 0, 9, 4, 1, 8, 2, 6, 5]


def classes_by_step(stream) -> list[set[int]]:
    """Counted from the data, and the same in the timeline."""
    counted = [{int(label) for label in experience.dataset.targets} for experience in stream]
    assert [set(experience.classes_in_this_experience) for experience in stream] == counted
    return counted


@pytest.fixture
def cifar_root(tmp_path, monkeypatch):
    """CIFAR-100's files with two training images and one test image a class, each pixel telling
    split, class and colour.
    """
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    generator = np.random.RandomState(0)
    for name, repeats in (("train", 2), ("test", 1)):
        labels = np.tile(np.arange(100), repeats)
        pixels = generator.randint(0, 256, (len(labels), 3072)).astype(np.uint8)
        (folder / name).write_bytes(pickle.dumps({"data": pixels, "fine_labels": labels.tolist()}))
    (folder / "meta").write_bytes(
        pickle.dumps({"fine_label_names": [f"name{class_id}" for class_id in range(100)]})
    )
    monkeypatch.setattr(cifar, "check_integrity", lambda path, md5: True)
    return tmp_path


@pytest.mark.parametrize("num_steps", [1, 2, 5, 10])
def test_equal_steps_hold_the_classes_in_the_given_order(num_steps):
    benchmark = split_digits(num_steps=num_steps, class_order=ORDER)
    size = 10 // num_steps
    expected = [set(ORDER[start : start + size]) for start in range(0, 10, size)]
    assert classes_by_step(benchmark.train_stream) == expected
    assert classes_by_step(benchmark.test_stream) == expected


@pytest.mark.parametrize("base_fraction, num_steps", [(0.0, 10), (0.0, 50), (0.5, 5), (0.5, 50)])
@pytest.mark.parametrize("name", ["paper", "cifar100-b"])
def test_cifar100_arrives_in_the_papers_order_by_default(
    cifar_root, base_fraction, num_steps, name
):
    chosen = {} if name == "paper" else {"class_order": name}
    benchmark = split_cifar100(
        cifar_root, num_steps=num_steps, base_fraction=base_fraction, **chosen
    )
    order = class_order("cifar100-a" if name == "paper" else name)
    base = int(100 * base_fraction)
    size = (100 - base) // num_steps
    expected = [set(order[:base])] * (base > 0) + [
        set(order[start : start + size]) for start in range(base, 100, size)
    ]
    assert classes_by_step(benchmark.train_stream) == expected
    assert classes_by_step(benchmark.test_stream) == expected
    assert benchmark.classes_order == list(order)


def test_a_cifar_image_keeps_its_label_name_and_pixels(cifar_root):
    """From the bytes of the file to the tensor, by class id."""
    benchmark = split_cifar100(cifar_root, num_steps=10)
    stored = pickle.loads((cifar_root / "cifar-100-python" / "test").read_bytes())
    for class_id in (87, 5, 43):
        experience = next(
            one for one in benchmark.test_stream if class_id in one.classes_in_this_experience
        )
        position = list(experience.dataset.targets).index(class_id)
        image, label, task = experience.dataset[position]
        planes = stored["data"][stored["fine_labels"].index(class_id)].reshape(
            3, 32, 32
        )  # red, green, blue
        for channel, (mean, std) in enumerate(
            [(0.5071, 0.2675), (0.4867, 0.2565), (0.4408, 0.2761)]
        ):
            np.testing.assert_allclose(
                image[channel], (planes[channel] / 255 - mean) / std, atol=1e-5
            )
        assert (label, task) == (class_id, 0)
    assert benchmark.class_names[87] == "name87" and len(benchmark.class_names) == 100


@pytest.mark.parametrize(
    "transforms, image_size, side",
    [
        ("official", None, 224),
        ("official", 32, 32),
        ("dytox", None, 32),
        ("dytox", 64, 64),
        ("plain", None, 32),
        ("plain", 40, 40),
    ],
)
def test_official_enlarges_cifar_to_224_px_and_the_others_do_not(
    cifar_root, transforms, image_size, side
):
    benchmark = split_cifar100(
        cifar_root, num_steps=5, transforms=transforms, image_size=image_size
    )
    assert benchmark.image_shape == benchmark.test_stream[0].dataset[0][0].shape == (3, side, side)
    assert benchmark.train_stream[0].dataset[0][0].shape == (3, side, side)


def test_dytox_at_a_small_size_refuses_images_it_would_have_to_resize(cifar_root):
    with pytest.raises(
        ValueError, match=r"image_size is 28, the images are \(width, height\) \(32, 32\)"
    ):
        split_cifar100(cifar_root, num_steps=5, image_size=28)


def test_cifar_that_is_not_on_disk_says_where_it_looked_and_how_to_get_it(tmp_path):
    with pytest.raises(FileNotFoundError) as error:
        split_cifar100(tmp_path, num_steps=10)
    for part in (
        str(tmp_path / "cifar-100-python"),
        "download=True",
        "cifar-100-python.tar.gz",
    ):
        assert part in str(error.value)


def test_a_damaged_cifar_file_is_not_read(cifar_root, monkeypatch):
    # torchvision's own check of the md5 sums: these files are not the official ones
    monkeypatch.undo()
    with pytest.raises(FileNotFoundError, match="is damaged, its md5 sum"):
        split_cifar100(cifar_root, num_steps=10)


def test_cifar_is_downloaded_only_when_asked(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(CIFAR100, "download", lambda self: asked.append(self.root))
    with pytest.raises(FileNotFoundError):
        split_cifar100(tmp_path, num_steps=10)
    assert asked == []
    with pytest.raises(ConnectionError):
        split_cifar100(tmp_path, num_steps=10, download=True)
    assert asked == [tmp_path]


def test_digits_are_scikit_learns_pixels_under_their_own_labels():
    benchmark = split_digits(num_steps=5, class_order=ORDER)
    pixels, labels = load_digits(return_X_y=True)
    assert benchmark.class_names == tuple("0123456789") and benchmark.image_shape == (1, 8, 8)
    for class_id in range(10):
        own = pixels[labels == class_id].reshape(-1, 1, 8, 8) / 16 * 2 - 1
        test = [i for i in range(len(own)) if i % 5 == 1]
        train = [i for i in range(len(own)) if i % 5 != 1]
        for stream, chosen in ((benchmark.train_stream, train), (benchmark.test_stream, test)):
            data = next(one for one in stream if class_id in one.classes_in_this_experience).dataset
            images = torch.stack(
                [data[i][0] for i, label in enumerate(data.targets) if label == class_id]
            )
            torch.testing.assert_close(images, torch.from_numpy(own[chosen]).float())


def test_without_an_order_the_seed_draws_one():
    orders = [split_digits(num_steps=5, seed=seed).classes_order for seed in (0, 0, 1)]
    assert orders[0] == orders[1] == np.random.RandomState(0).permutation(10).tolist()
    assert orders[2] == np.random.RandomState(1).permutation(10).tolist() != orders[0]


@pytest.fixture
def untyped(monkeypatch):
    """The package without run-time type checks: beartype draws the item it looks at from
    `random`.
    """
    monkeypatch.setattr(
        sys,
        "meta_path",
        [finder for finder in sys.meta_path if "jaxtyping" not in type(finder).__module__],
    )
    for name in [name for name in sys.modules if name.split(".")[0] == "avalanche_hfc"]:
        monkeypatch.delitem(sys.modules, name)
    return import_module("avalanche_hfc.benchmarks")


def test_making_a_benchmark_leaves_every_global_generator_alone(untyped):
    random.seed(5), np.random.seed(5), torch.manual_seed(5)
    before = random.getstate(), np.random.get_state(), torch.get_rng_state()
    for seed in (0, 1993):
        untyped.split_digits(num_steps=5, seed=seed)
    untyped.class_order("cifar100-a"), untyped.build_transforms("official", 32)
    assert random.getstate() == before[0]
    assert all(
        np.array_equal(new, old) for new, old in zip(np.random.get_state(), before[1], strict=True)
    )
    assert torch.equal(torch.get_rng_state(), before[2])


@pytest.mark.parametrize(
    "options, message",
    [
        (
            {"num_steps": 3},
            "10 classes cannot be split over 3 steps. Allowed num_steps: 1, 2, 5, 10.",
        ),
        (
            {"num_steps": 2, "base_fraction": 0.5},
            "5 classes after a base step of 5 cannot be split over 2 steps. Allowed "
            "num_steps: 1, 5.",
        ),
        ({"num_steps": 0}, "num_steps must be a whole number of at least 1, got 0."),
        (
            {"base_fraction": 0.4},
            "base_fraction must be 0 (equal steps) or 0.5 (half of the classes first), got 0.4.",
        ),
        (
            {"class_order": [0, 1, 2, 3, 4, 5, 6, 7, 8, 8, 12]},
            "class_order (given) must hold each class id from 0 to 9 once. missing: 9; "
            "repeated: 8; unknown: 12.",
        ),
        (
            {"class_order": [*range(9), -1]},
            "class_order (given) must hold each class id from 0 to 9 once. missing: 9; "
            "unknown: -1.",
        ),
        (
            {"class_order": range(100)},
            "class_order (given) must hold each class id from 0 to 9 once. unknown: 10, 11, "
            "12, 13, 14, 15, 16, 17, 18, 19 … (90 in all).",
        ),
        (
            {"class_order": "paper"},
            "class_order 'paper' exists for CIFAR-100 and ImageNet only. Pass None, a name "
            "or all class ids.",
        ),
        (
            {"transforms": "plan"},
            "Unknown transforms 'plan'. Known: dytox, official, plain, flip-crop. Did you mean 'plain'?",
        ),
        (
            {"transforms": "dytox"},
            "transforms 'dytox' need uint8 images, these are float. Use transforms='plain' "
            "or convert them.",
        ),
        ({"image_size": 0}, "image_size must be at least 1 pixel or None, got 0."),
    ],
)
def test_a_bad_argument_is_named_with_what_is_allowed(options, message):
    with pytest.raises(ValueError) as error:
        split_digits(**{"num_steps": 5, **options})
    assert str(error.value) == message


# As Avalanche's current generators build it


@pytest.mark.parametrize("num_steps, per_step", [(2, 5), (5, 2)])
def test_images_labels_and_order_are_those_of_nc_benchmark(num_steps, per_step):
    ours = split_digits(num_steps=num_steps, class_order=ORDER, transforms="flip-crop")
    source = read_digits()
    train_transform, eval_transform = build_transforms("flip-crop", 8, statistics=source.statistics)
    theirs = nc_benchmark(
        source.train,
        source.test,
        n_experiences=num_steps,
        task_labels=False,
        fixed_class_order=ORDER,
        train_transform=train_transform,
        eval_transform=eval_transform,
    )
    assert isinstance(ours, CLScenario) and not isinstance(ours, NCScenario)
    assert ours.n_classes_per_exp == theirs.n_classes_per_exp == [per_step] * num_steps
    assert (ours.classes_order, ours.n_classes) == (theirs.classes_order, theirs.n_classes)
    for name in ("train", "test"):
        streams = ours.streams[name], theirs.streams[name]
        assert len(streams[0]) == len(streams[1]) == ours.n_experiences
        for own, other in zip(*streams, strict=True):
            assert list(own.dataset.targets) == list(other.dataset.targets)
            assert (own.current_experience, own.task_labels) == (other.current_experience, [0])
            assert own.origin_stream.name == name and own.benchmark is ours
            for timeline in ("classes_in_this_experience", "previous_classes", "future_classes"):
                assert set(getattr(own, timeline)) == set(getattr(other, timeline) or ())
            for position in (0, 7, len(own.dataset) - 1):
                torch.manual_seed(position)
                image, label, task = own.dataset[position]
                torch.manual_seed(position)
                expected = other.dataset[position]
                assert torch.equal(image, expected[0]) and [label, task] == expected[1:]


def test_what_a_strategy_writes_into_an_experience_does_not_stay():
    benchmark = split_digits(num_steps=5)
    before = len(benchmark.train_stream[0].dataset)
    experience = benchmark.train_stream[0]
    experience.dataset = experience.dataset.subset([0, 1])
    assert len(experience.dataset) == 2 and len(benchmark.train_stream[0].dataset) == before


@pytest.mark.parametrize("base_fraction, num_steps", [(0.0, 5), (0.5, 5)])
def test_n_experiences_counts_every_experience(base_fraction, num_steps):
    chosen = dict(base_fraction=base_fraction, class_order=ORDER)
    expected = split_digits(num_steps=num_steps, **chosen)
    benchmark = split_digits(n_experiences=len(expected.train_stream), **chosen)
    assert classes_by_step(benchmark.train_stream) == classes_by_step(expected.train_stream)


@pytest.mark.parametrize(
    "steps, message",
    [
        ({}, "Pass either num_steps or n_experiences, got None and None"),
        (dict(num_steps=5, n_experiences=5), "Pass either .* got 5 and 5"),
        (dict(n_experiences=0), "at least 1, got 0"),
        (dict(n_experiences=2.0), "whole number of at least 1, got 2.0"),
        (dict(n_experiences=1, base_fraction=0.5), "at least 1, got 0"),
    ],
)
def test_a_number_of_steps_that_is_missing_or_doubtful_is_refused(
    steps, message, annotations_unchecked
):
    with pytest.raises(ValueError, match=message):
        split_digits(**steps)
