"""The flat view gives bit for bit what Avalanche's layers give, or says that it cannot."""

import pickle
import random

import numpy as np
import pytest
import torch
from avalanche.benchmarks import nc_benchmark
from avalanche.benchmarks.scenarios.supervised import class_incremental_benchmark
from avalanche.benchmarks.utils import AvalancheDataset, as_classification_dataset
from avalanche.benchmarks.utils.classification_dataset import (
    _make_taskaware_tensor_classification_dataset,
)
from avalanche.benchmarks.utils.data_attribute import DataAttribute
from avalanche.benchmarks.utils.flat_data import FlatData
from avalanche.benchmarks.utils.transform_groups import TransformGroups
from avalanche.benchmarks.utils.transforms import MultiParamTransformCallable
from avalanche.benchmarks.utils.utils import concat_datasets
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from PIL import Image
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset, default_collate
from torchvision.transforms import Compose, RandomCrop, RandomHorizontalFlip, ToTensor
from torchvision.transforms.v2 import ToDtype

from avalanche_hfc.benchmarks.positions import PositionDataset, collate, flatten
from avalanche_hfc.benchmarks.sources import TensorImages

N, CLASSES = 24, 4
pytestmark = pytest.mark.filterwarnings("ignore")  # Avalanche's own deprecations


class Pictures(Dataset):
    """PIL images and python labels, as torchvision's CIFAR gives them. `draw` makes the leaf itself
    random.
    """

    def __init__(self, seed=0, draw=False):
        self.data = np.random.default_rng(seed).integers(0, 256, (N, 6, 6, 3), dtype=np.uint8)
        self.targets = [(i * 7 + seed) % CLASSES for i in range(N)]
        self.draw = draw

    def __len__(self):
        return N

    def __getitem__(self, i):
        image = Image.fromarray(self.data[i])
        if self.draw:
            image = image.rotate(
                90 * (int(torch.randint(4, ())) + random.randrange(4) + np.random.randint(4))
            )
        return image, self.targets[i]


class CollatedPictures(Pictures):
    def __getitems__(self, positions):
        return default_collate(
            [(ToTensor()(image), y) for image, y in (self[i] for i in positions)]
        )


class Named(Pictures):
    def __getitem__(self, i):
        return {"x": torch.zeros(1), "y": self.targets[i]}


def add_noise(x):
    return x + torch.rand(()) + np.random.rand() + random.random()


def noisy_label(y):
    return int(y) * 1000 + int(torch.randint(1000, ()))


CROPS = Compose([RandomCrop(6, 2), RandomHorizontalFlip(), ToTensor()])


def tensors(seed=0, dtype=torch.int64):
    generator = torch.Generator().manual_seed(seed)
    y = ((torch.arange(N) * 5 + seed) % CLASSES).to(dtype)
    dataset = TensorDataset(torch.rand(N, 3, 2, 2, generator=generator), y)
    dataset.targets = y.tolist()
    return dataset


def steps_of(leaf, train=None, evaluation=None, **options):
    options = {"n_experiences": 2, "task_labels": False, "seed": 3, **options}
    stream = nc_benchmark(
        leaf, leaf, train_transform=train, eval_transform=evaluation, **options
    ).train_stream
    return [experience.dataset for experience in stream]


def incremental_of(leaf, groups=None):
    whole = as_classification_dataset(
        leaf, transform_groups=TransformGroups(groups) if groups else None
    )
    stream = class_incremental_benchmark(
        {"train": whole, "test": whole}, num_experiences=2
    ).train_stream
    return [experience.dataset for experience in stream]


def replayed(steps):
    new, old = steps[1].train(), steps[0].train()
    return concat_datasets([new, old.subset([5, 1, 3]), old.subset([0, 1])])


def with_positions(dataset):
    return dataset.update_data_attribute(
        "pos", DataAttribute([f"p{i}" for i in range(len(dataset))], "pos", use_in_getitem=True)
    )


def two_leaves(train=None):
    first, second = (
        as_classification_dataset(tensors(seed), transform_groups={"train": (train, None)})
        for seed in (0, 1)
    )
    return first.concat(second).subset([0, 47, 3, 30, 12, 24, 23, 3])


def mixed_groups():
    """A tree with a plain FlatData inside: below it a node uses its own group, not the one chosen
    at the top.
    """
    inner = steps_of(tensors(), torch.neg, torch.exp)[0].eval()._flat_data
    return AvalancheDataset(
        [FlatData([inner], indices=[2, 0, 1])],
        transform_groups=TransformGroups({"train": (torch.abs, None)}),
    )


ARRIVAL = {"fixed_class_order": [2, 0, 3, 1], "class_ids_from_zero_from_first_exp": True}


def tensor_images(*, as_pil=False):
    random = np.random.RandomState(0)
    images = TensorImages(
        torch.from_numpy(random.randint(0, 256, (18, 3, 8, 8), dtype=np.uint8)), np.arange(18) % 6
    )
    images.as_pil = as_pil
    return images


def add_noise_to_bytes(image):
    return image / 255 + torch.rand(()) + random.random()


STRUCTURES = {
    "tensors": lambda: steps_of(tensors())[0],
    "tensors, order of arrival as class ids": lambda: steps_of(tensors(), **ARRIVAL)[1],
    "tensors, small labels": lambda: steps_of(tensors(dtype=torch.uint8), **ARRIVAL)[1],
    "tensors, task labels": lambda: concat_datasets(steps_of(tensors(), task_labels=True)),
    "tensors, eval": lambda: steps_of(tensors(), add_noise, torch.neg)[0].eval(),
    "tensors, train": lambda: steps_of(tensors(), add_noise, torch.neg)[0].eval().train(),
    "tensors, two random columns": lambda: as_classification_dataset(
        tensors(), transform_groups={"train": (add_noise, noisy_label)}
    ),
    "tensors, a random label": lambda: as_classification_dataset(
        tensors(), transform_groups={"train": (None, noisy_label)}
    ),
    "tensors, float labels": lambda: AvalancheDataset(
        [TensorDataset(torch.rand(9, 2), torch.rand(9), torch.rand(9, 3))]
    ),
    "tensors, subset": lambda: steps_of(tensors())[0].subset([4, 4, 0, 7]),
    "tensors, subset from the end": lambda: AvalancheDataset([tensors()]).subset([-1, 3, -2]),
    "tensors, replay": lambda: replayed(steps_of(tensors(), add_noise, torch.neg)),
    "tensors, frozen": lambda: (
        steps_of(tensors(), torch.neg, torch.exp)[0].train().freeze_transforms().eval()
    ),
    "tensors, frozen and replaced": lambda: (
        steps_of(tensors(), add_noise, torch.exp)[0]
        .train()
        .replace_current_transform_group((torch.abs, None))
        .freeze_transforms()
    ),
    "tensors, transforms on transforms": lambda: AvalancheDataset(
        [steps_of(tensors(), torch.exp, None)[0]],
        transform_groups=TransformGroups({"train": (torch.neg, None)}),
        frozen_transform_groups=TransformGroups({"train": (torch.log1p, None)}),
    ),
    "tensors, numbers as labels": lambda: _make_taskaware_tensor_classification_dataset(
        torch.rand(9, 2),
        torch.arange(9, dtype=torch.int32) % 3,
        transform_groups={"train": (add_noise, None), "eval": (None, None)},
    ),
    "tensors, numbers as labels, eval": lambda: _make_taskaware_tensor_classification_dataset(
        torch.rand(9, 2),
        torch.arange(9, dtype=torch.int32) % 3,
        transform_groups={"train": (add_noise, None), "eval": (None, None)},
    ).eval(),
    "tensors, real numbers as labels": lambda: _make_taskaware_tensor_classification_dataset(
        torch.rand(9, 2), torch.arange(9.0)
    ),
    "two leaves": two_leaves,
    "two leaves, random": lambda: two_leaves(add_noise),
    "two leaves, unlike dtypes": lambda: as_classification_dataset(tensors(0, torch.int32)).concat(
        as_classification_dataset(tensors(1))
    ),
    "groups of their own": mixed_groups,
    "pictures": lambda: steps_of(Pictures(), CROPS, ToTensor())[0],
    "pictures, eval": lambda: steps_of(
        Pictures(), CROPS, ToTensor(), class_ids_from_zero_from_first_exp=True
    )[1].eval(),
    "pictures, replay": lambda: replayed(steps_of(Pictures(), CROPS, ToTensor())),
    "pictures, two random leaves": lambda: concat_datasets(
        [steps_of(Pictures(seed, draw=True), CROPS, ToTensor())[0] for seed in (0, 1)]
    ).subset([0, 17, 3, 20, 1]),
    "pictures, torch subset": lambda: AvalancheDataset(
        [Subset(Pictures(draw=True), [3, 9, 9, 2])],
        transform_groups=TransformGroups({"train": (CROPS, None)}),
    ),
    "pictures, collated batches": lambda: steps_of(CollatedPictures(), CROPS, ToTensor())[0],
    "images in a tensor": lambda: steps_of(
        tensor_images(), ToDtype(torch.float32, scale=True), None
    )[0],
    "images in a tensor, as PIL": lambda: steps_of(tensor_images(as_pil=True), CROPS, ToTensor())[
        0
    ],
    "images in a tensor, random, replay": lambda: replayed(
        steps_of(tensor_images(), add_noise_to_bytes, None)
    ),
    "incremental tensors": lambda: incremental_of(tensors())[1],
    "incremental pictures, replay": lambda: replayed(
        incremental_of(Pictures(), {"train": (CROPS, None), "eval": (ToTensor(), None)})
    ),
    "names of positions": lambda: with_positions(steps_of(tensors())[0]),
    "a repeated data set": lambda: (lambda data: AvalancheDataset([data, data, data]))(
        AvalancheDataset([tensors()])
    ),
}


def seed_all():
    torch.manual_seed(5)
    np.random.seed(5)
    random.seed(5)


def equal(ours, theirs):
    assert type(ours) is type(theirs) is list and len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert type(a) is type(b)
        if isinstance(a, torch.Tensor):
            assert a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)
        else:
            assert a == b


def after_seeding(read):
    seed_all()
    result = read()
    return result, (torch.rand(()).item(), np.random.rand(), random.random())


@pytest.mark.parametrize("structure", STRUCTURES)
def test_a_batch_is_the_collated_samples_and_draws_what_a_loop_draws(structure):
    dataset = STRUCTURES[structure]()
    flat = flatten(dataset)
    positions = [*torch.randperm(len(dataset)).tolist(), 0, 2, 0]
    ours, drawn = after_seeding(lambda: flat.__getitems__(positions))
    theirs, expected = after_seeding(
        lambda: default_collate([dataset[position] for position in positions])
    )
    equal(ours, theirs)
    assert drawn == expected and len(flat) == len(dataset)


@pytest.mark.parametrize("structure", ["tensors, replay", "pictures, replay"])
def test_two_workers_give_the_batches_of_avalanches_two_workers(structure):
    dataset = STRUCTURES[structure]()
    options = {"batch_size": 4, "num_workers": 2}
    ours, _ = after_seeding(
        lambda: list(DataLoader(flatten(dataset), collate_fn=collate, **options))
    )
    theirs, _ = after_seeding(lambda: list(DataLoader(dataset, **options)))
    for a, b in zip(ours, theirs, strict=True):
        equal(a, b)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_looking_at_the_leaves_leaves_the_generators_alone(structure):
    dataset = STRUCTURES[structure]()
    _, drawn = after_seeding(lambda: flatten(dataset))
    _, expected = after_seeding(lambda: None)
    assert drawn == expected


BASE = {
    "tensors": lambda: steps_of(tensors(), add_noise, torch.neg, **ARRIVAL),
    "plain": lambda: steps_of(tensors(), task_labels=True),
    "pictures": lambda: steps_of(Pictures(), CROPS, ToTensor()),
}
NUMBERS = st.lists(st.integers(0, 999), min_size=1, max_size=12)
OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["subset", "concat", "step", "train", "eval", "freeze"]), NUMBERS),
    max_size=8,
)


@settings(max_examples=60)
@given(base=st.sampled_from(sorted(BASE)), operations=OPERATIONS)
def test_every_tree_of_subsets_and_concatenations_is_reproduced(base, operations):
    torch.manual_seed(0)
    steps = BASE[base]()
    dataset = steps[0]
    for operation, numbers in operations:
        indices = [number % len(dataset) for number in numbers]
        if operation == "subset":
            dataset = dataset.subset(indices)
        elif operation == "concat":
            dataset = dataset.concat(dataset.subset(indices))
        elif operation == "step":
            dataset = concat_datasets(
                [dataset, steps[1].subset([number % len(steps[1]) for number in numbers])]
            )
        elif operation == "freeze":
            dataset = dataset.freeze_transforms()
        else:
            dataset = getattr(dataset, operation)()
    flat = flatten(dataset)
    positions = list(range(len(dataset)))[::-1][:30]
    try:
        theirs, expected = after_seeding(
            lambda: default_collate([dataset[position] for position in positions])
        )
    except TypeError:
        # labels of two kinds, tensors and numbers, which torch itself cannot put into a batch
        reject()
    ours, drawn = after_seeding(lambda: flat.__getitems__(positions))
    equal(ours, theirs)
    assert drawn == expected


def test_fifty_rounds_of_replay_stay_one_source():
    first, second = steps_of(tensors(), add_noise, torch.neg)
    dataset = first.train()
    for round_ in range(50):
        dataset = concat_datasets([second.train(), dataset.subset([round_ % len(dataset), 0, 1])])
    flat = flatten(dataset)
    assert len(flat.sources) == 1
    positions = list(range(len(dataset)))
    ours, _ = after_seeding(lambda: flat.__getitems__(positions))
    theirs, _ = after_seeding(
        lambda: default_collate([dataset[position] for position in positions])
    )
    equal(ours, theirs)


def test_tensors_without_transforms_are_not_read_sample_by_sample(monkeypatch):
    flat = flatten(steps_of(tensors(), **ARRIVAL)[0])
    monkeypatch.setattr(
        TensorDataset, "__getitem__", lambda self, i: pytest.fail("read one by one")
    )
    assert len(flat.__getitems__([4, 2])[0]) == 2


def test_images_in_a_tensor_are_not_read_sample_by_sample(monkeypatch):
    flat = flatten(steps_of(tensor_images())[0])
    monkeypatch.setattr(TensorImages, "__getitem__", lambda self, i: pytest.fail("read one by one"))
    assert flat.__getitems__([4, 2])[0].shape == (2, 3, 8, 8)


def test_a_pickled_view_gives_the_same_batches():  # what a spawned worker receives
    flat = flatten(STRUCTURES["pictures, replay"]())
    ours, _ = after_seeding(lambda: pickle.loads(pickle.dumps(flat)).__getitems__([1, 0, 9]))
    theirs, _ = after_seeding(lambda: flat.__getitems__([1, 0, 9]))
    equal(ours, theirs)


class OwnReading(AvalancheDataset):
    def __getitem__(self, i):
        return [1, 2]


class OwnLayer(FlatData):
    pass


class OwnGroups(TransformGroups):
    pass


def grouped(transform, seed=0, group="train"):
    return AvalancheDataset([tensors(seed)], transform_groups=TransformGroups({group: transform}))


REFUSED = {
    "no AvalancheDataset": (tensors, "TensorDataset: the flat view needs an AvalancheDataset"),
    "its own reading": (lambda: OwnReading([tensors()]), "OwnReading"),
    "dict samples": (lambda: AvalancheDataset([Named()]), "Named gives a dict"),
    "dict samples, behind others": (
        lambda: AvalancheDataset([Pictures(), Named()]),
        "Named gives a dict",
    ),
    "one value": (lambda: AvalancheDataset([TensorDataset(torch.rand(3, 2))]), "gives a tuple"),
    "its own collate": (
        lambda: AvalancheDataset([tensors()], collate_fn=lambda batch: batch),
        "torch's default_collate",
    ),
    "an empty set": (lambda: AvalancheDataset([tensors()]).subset([]), "at least one sample"),
    "an unknown layer": (
        lambda: AvalancheDataset([OwnLayer([tensors()], can_flatten=False)]),
        "unknown layer OwnLayer",
    ),
    "unknown groups": (
        lambda: AvalancheDataset([tensors()], transform_groups=OwnGroups({"train": None})),
        "OwnGroups",
    ),
    "a missing group": (
        lambda: (
            grouped((torch.neg, None), group="odd")
            .with_transforms("odd")
            .concat(grouped((torch.neg, None), 1))
            .with_transforms("odd")
        ),
        "no transform group 'odd'",
    ),
    "x and y at once": (
        lambda: grouped(MultiParamTransformCallable(lambda x, y: (x, y))),
        "MultiParamTransformCallable",
    ),
    "too many transforms": (
        lambda: grouped((None, None, torch.neg)),
        "a value for each transform",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_understood_is_left_to_avalanche(case):
    make, reason = REFUSED[case]
    dataset = make()
    assert flatten(dataset) is None
    with pytest.raises(ValueError, match=reason):
        PositionDataset(dataset)


@pytest.mark.parametrize("positions", [[], [-1], [0, 12], [12]])
def test_positions_outside_are_named(positions):
    flat = flatten(steps_of(tensors())[0])
    assert len(flat) == 12
    with pytest.raises(IndexError, match=r"0\.\.11, got"):
        flat.__getitems__(positions)
