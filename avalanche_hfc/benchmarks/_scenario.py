"""A benchmark of class-incremental steps, made of the parts of Avalanche's current generators."""

from collections.abc import Sequence
from copy import copy
from itertools import accumulate, pairwise

from avalanche.benchmarks import CLScenario, EagerCLStream, with_classes_timeline
from avalanche.benchmarks.scenarios.dataset_scenario import DatasetExperience
from avalanche.benchmarks.scenarios.task_aware import with_task_labels
from avalanche.benchmarks.utils import (
    AvalancheDataset,
    ConstantSequence,
    DataAttribute,
    TaskAwareSupervisedClassificationDataset,
    TaskLabels,
    TransformGroups,
)

from avalanche_hfc.benchmarks._images import FileImages, Source, TensorImages, listing_digest
from avalanche_hfc.benchmarks._records import fingerprint
from avalanche_hfc.benchmarks.transforms import Transform


class SplitExperience(DatasetExperience):
    """An experience that knows its benchmark and whose data can be replaced.

    Avalanche's ICaRL reads `benchmark`, and its BiC writes `dataset`.
    """

    @property
    def dataset(self) -> AvalancheDataset:
        """The images of the experience."""
        return self._dataset

    @dataset.setter
    def dataset(self, dataset: AvalancheDataset) -> None:
        self._dataset = dataset

    @property
    def benchmark(self) -> "SplitBenchmark":
        """The benchmark that the experience is part of."""
        return self.origin_stream.benchmark


class SplitStream(EagerCLStream):
    """A stream that returns copies of its experiences: what a strategy writes there does not stay.

    Experiences are indexed and sliced as in a list.
    """

    def _make_experience(self, experience_idx: int) -> SplitExperience:
        return copy(self._exps[experience_idx])


class SplitBenchmark(CLScenario):
    """A data set split by class into steps: a `CLScenario` with a train and a test stream.

    `train_stream` and `test_stream` have an experience for each step, with a class timeline and the
    task label 0; batches are (x, y, task label). `classes_order`, `n_classes`, `n_classes_per_exp`
    and `n_experiences` are as in Avalanche's `nc_benchmark`. `class_names` has the name of each
    class id. `records` identifies the files of your data and `left_out` names those that are not
    readable images. The `split_*` functions build benchmarks.

    Args:
        source: The images, as read.
        order: All class ids in order of arrival.
        per_step: Number of classes of each step.
        image_shape: Channels, height and width of an image after the transforms.
        train_transform: Transform of the ``"train"`` group; None for none.
        eval_transform: Transform of the ``"eval"`` group; None for none.
        remarks: Lines for whoever starts a run.

    Example:
        >>> from avalanche_hfc.benchmarks import split_digits
        >>> benchmark = split_digits(num_steps=5, class_order=range(10))
        >>> benchmark.n_classes_per_exp, benchmark.image_shape
        ([2, 2, 2, 2, 2], (1, 8, 8))
    """

    train_stream: SplitStream
    test_stream: SplitStream

    def __init__(
        self,
        source: Source,
        order: Sequence[int],
        per_step: Sequence[int],
        *,
        image_shape: tuple[int, int, int],
        train_transform: Transform | None,
        eval_transform: Transform | None,
        remarks: tuple[str, ...],
    ):
        transforms = TransformGroups(
            {"train": (train_transform, None), "eval": (eval_transform, None)}
        )
        steps = [order[start:end] for start, end in pairwise(accumulate(per_step, initial=0))]
        streams = [
            EagerCLStream(name, experiences(images, steps, transforms, group))
            for name, images, group in (
                ("train", source.train, "train"),
                ("test", source.test, "eval"),
            )
        ]
        labelled = with_task_labels(with_classes_timeline(CLScenario(streams)))
        super().__init__(
            [SplitStream(name, stream.exps, self) for name, stream in labelled.streams.items()]
        )
        self.classes_order, self.n_classes = list(order), len(order)
        self.n_classes_per_exp, self.n_experiences = list(per_step), len(per_step)
        self.class_names, self.image_shape = source.class_names, image_shape
        self.records, self.left_out, self.remarks = source.records, source.left_out, remarks
        self._parts = (source.train, source.test)

    def fingerprint(self) -> str:
        """What identifies the data.

        It is the content of your files; of other data it is the class ids and, of images in files,
        their paths and sizes, so that no image is read.

        Returns:
            A SHA-256.

        Example:
            >>> from avalanche_hfc.benchmarks import split_digits
            >>> one, other = (split_digits(num_steps=5).fingerprint() for _ in range(2))
            >>> one == other
            True
        """
        return fingerprint(self.records) if self.records else listing_digest(self._parts)


def experiences(
    images: TensorImages | FileImages,
    steps: Sequence[Sequence[int]],
    transforms: TransformGroups,
    group: str,
) -> list[SplitExperience]:
    """An experience for each list of class ids, under the transforms of a group.

    Images of a step come class by class in the order of a Python set, as in Avalanche's
    `nc_benchmark`: stored exemplars are positions in that order.
    """
    targets = DataAttribute(images.targets, "targets")
    data: TaskAwareSupervisedClassificationDataset = TaskAwareSupervisedClassificationDataset(
        [images],
        data_attributes=[targets, TaskLabels(ConstantSequence(0, len(images)))],
        transform_groups=transforms,
    ).with_transforms(group)  # the constructor starts with "train" whatever the groups say
    return [
        SplitExperience(
            dataset=data.subset(
                [index for class_id in set(step) for index in targets.val_to_idx[class_id]]
            )
        )
        for step in steps
    ]
