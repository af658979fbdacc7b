"""Herding replay: each step trains on new data and exemplars, kept as positions in the data."""

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import SupportsIndex

import torch
import torch.nn.functional as F
from avalanche.benchmarks.utils import concat_datasets
from avalanche.training.plugins import AGEMPlugin
from avalanche.training.supervised import EWC, LwF, Naive
from avalanche.training.templates import SupervisedTemplate
from jaxtyping import Float, Int
from torch import Tensor, nn

from avalanche_hfc._types import Experience, HostDataset, State, Strategy
from avalanche_hfc.memory import ExemplarMemory
from avalanche_hfc.plugins.features import feature_function, features_of
from avalanche_hfc.plugins.ranked import RankedPlugin
from avalanche_hfc.plugins.steps import (
    StepTable,
    check_ranks,
    check_single_head,
    classes_of,
    known_classes,
)

DEFAULT_MEMORY = 2000  # Sec. 4.1
HOSTS_WITHOUT_MEMORY = (Naive, LwF, EWC)
# attributes of most of Avalanche's plugins; ICaRL, GEM, GSS
MEMORY_NAMES = ("storage_policy", "x_memory", "memory_x", "ext_mem_list_x")


class HerdingReplayPlugin(RankedPlugin):
    """Herding replay: keeps exemplars of each class and adds them to the data of later steps.

    Exemplars are chosen at the end of a step with the current model and the eval transform, and
    replayed under the training transform. They are kept as positions (the offset of their
    experience in training order plus the index in ``experience.dataset``); no image is copied and
    no data set is nested. Works in strategies without a memory: Naive, LwF, EWC and those of this
    package; your strategy can declare ``takes_herding_replay = True``.

    Args:
        mem_size: Number of exemplars of all classes together. 2000 if `per_class` is not given
            either.
        per_class: Number of exemplars of each class.
        rule: How exemplars are chosen, see `herding_order`. ``"first"`` needs no features.
        share: How `mem_size` is divided among the classes, see `ExemplarMemory`.

    Raises:
        ValueError: If both `mem_size` and `per_class` are given, or a value is not allowed.

    Example:
        >>> import torch
        >>> from avalanche.training import Naive
        >>> from avalanche_hfc.plugins import HerdingReplayPlugin
        >>> model, plugin = torch.nn.Linear(4, 2), HerdingReplayPlugin(mem_size=20)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> strategy = Naive(model=model, optimizer=optimizer, plugins=[plugin])
    """

    hold_out = 0.0

    def __init__(
        self,
        *,
        mem_size: SupportsIndex | None = None,
        per_class: SupportsIndex | None = None,
        rule: str = "greedy",
        share: str = "floor",
    ):
        super().__init__()
        self.memory = ExemplarMemory(
            **checked_budget(mem_size, per_class), rule=rule, share=share, hold_out=self.hold_out
        )
        self.sources: list[HostDataset] = []  # of each step trained, in training order
        self._source_ids: list[int] = []  # their indices in the stream they came from
        self._lengths: list[int] = []
        # class id -> unit features of its exemplars, until the model changes
        self._fresh: dict[int, Tensor] = {}

    def before_training(self, strategy: Strategy, **kwargs: object) -> None:
        refuse_second_memory(strategy, self)
        check_single_head("HerdingReplayPlugin", strategy.model)
        check_ranks("HerdingReplayPlugin", strategy)
        if self.memory.rule != "first":
            feature_function(strategy.model)

    def before_training_exp(self, strategy: Strategy, **kwargs: object) -> None:
        self.forget_features()

    def forget_features(self) -> None:
        """Discard the features of exemplars, because the model has changed."""
        self._fresh = {}

    def after_train_dataset_adaptation(self, strategy: Strategy, **kwargs: object) -> None:
        self._check_budget(strategy.experience)
        StepTable.of(strategy).learn(strategy.experience, strategy.clock.train_exp_counter)
        self.find_sources(strategy.experience)
        replayed = self.old_exemplars(strategy.experience)
        if replayed:
            strategy.adapted_dataset = concat_datasets([strategy.adapted_dataset, *replayed])

    def after_forward(self, strategy: Strategy, **kwargs: object) -> None:
        # raises before the first update if a class is outside the head
        StepTable.of(strategy).on(strategy.mb_output)

    def exemplars(self, class_ids: Iterable[int] | None = None) -> list[HostDataset]:
        """The exemplars as data sets under the training transform.

        Args:
            class_ids: Class ids; by default all classes in the memory.

        Returns:
            One data set for each step that has exemplars.

        Raises:
            ValueError: If the plugin was restored by `load_state_dict` and `find_sources` was not
                called.
        """
        if len(self.sources) < len(self._lengths):
            raise ValueError(
                "HerdingReplayPlugin: the data sets of the exemplars are not known after "
                "load_state_dict. "
                "Call find_sources(experience) with any experience of the benchmark, or train "
                "the next step."
            )
        wanted = self.memory.classes if class_ids is None else tuple(class_ids)
        return self.subsets(
            torch.cat(
                [
                    torch.empty(0, dtype=torch.int64),
                    *(self.memory.of(class_id) for class_id in wanted),
                ]
            )
        )

    def old_exemplars(self, experience: Experience) -> list[HostDataset]:
        """The exemplars of the classes that are not in this experience.

        Args:
            experience: An Avalanche experience with `classes_in_this_experience`.

        Returns:
            One data set under the training transform for each step that has exemplars.
        """
        arriving = set(classes_of(experience))
        return self.exemplars(
            class_id for class_id in self.memory.classes if class_id not in arriving
        )

    def subsets(self, positions: Int[Tensor, "n"]) -> list[HostDataset]:
        """The images at these positions.

        Args:
            positions: Positions in the training data, shape ``(n,)``.

        Returns:
            One data set under the training transform for each step that has any.
        """
        start, datasets = 0, []
        for source, length in zip(self.sources, self._lengths, strict=True):
            indices = positions[(positions >= start) & (positions < start + length)] - start
            if len(indices):
                datasets.append(source.train().subset(indices.tolist()))
            start += length
        return datasets

    def after_training_exp(
        self, strategy: Strategy, num_workers: int = 0, **kwargs: object
    ) -> None:
        self.update(strategy, num_workers)

    def update(
        self, strategy: Strategy, num_workers: int = 0, model: nn.Module | None = None
    ) -> None:
        """Choose exemplars of the classes of the current step with the current model.

        Calling it again in the same step changes nothing.

        Args:
            strategy: An Avalanche strategy.
            num_workers: Number of worker processes that load images.
            model: The model whose features are used. By default that of the strategy.
        """
        experience = strategy.experience
        known = set(self.memory.classes)
        arriving = [class_id for class_id in classes_of(experience) if class_id not in known]
        if not arriving:
            return
        features = self._features(strategy, experience.dataset, num_workers, model)
        self.memory.reserve(arriving)
        self._choose(self.memory.update, arriving, experience, features, sum(self._lengths))
        self.sources.append(experience.dataset)
        self._source_ids.append(experience.current_experience)
        self._lengths.append(len(experience.dataset))

    def choose_again(self, strategy: Strategy, num_workers: int = 0) -> None:
        """Choose the exemplars of the current step's classes anew, after its model has changed.

        Args:
            strategy: An Avalanche strategy, in whose current step `update` was called.
            num_workers: Number of worker processes that load images.
        """
        self.forget_features()
        experience = strategy.experience
        features = self._features(strategy, experience.dataset, num_workers)
        offset = sum(self._lengths[:-1])
        class_ids = classes_of(experience)
        self._choose(self.memory.choose_again, class_ids, experience, features, offset)

    def _choose(
        self,
        choose: Callable[[int, Tensor, Tensor], None],
        class_ids: Sequence[int],
        experience: Experience,
        features: Float[Tensor, "n D"],
        offset: int,
    ) -> None:
        """Rank the images of some classes of a step, and keep the features of the best."""
        targets = torch.as_tensor(list(experience.dataset.targets))
        indices = indices_by_class(targets, class_ids)
        for class_id in class_ids:
            rows = self.candidates(class_id, indices[class_id])
            choose(class_id, features[rows.to(features.device)], rows + offset)
            if self.memory.rule != "first":
                kept = (self.memory.of(class_id) - offset).to(features.device)
                self._fresh[class_id] = F.normalize(features[kept])

    def candidates(self, class_id: int, indices: Int[Tensor, "n"]) -> Int[Tensor, "own"]:
        """Which images of a class may become exemplars; by default all.

        Args:
            class_id: The class.
            indices: The images of the class, as indices into the data of the step, shape ``(n,)``.

        Returns:
            Some of the indices.
        """
        return indices

    def _features(
        self,
        strategy: Strategy,
        data: HostDataset,
        num_workers: int,
        model: nn.Module | None = None,
    ) -> Float[Tensor, "n D"]:
        """Features of a data set, or as many empty rows if the rule needs none."""
        if self.memory.rule == "first":
            return torch.zeros(len(data), 1)
        features = features_of(
            strategy.model if model is None else model,
            data,
            batch_size=strategy.eval_mb_size,
            device=strategy.device,
            num_workers=num_workers,
        )
        if not features.isfinite().all():
            clock = strategy.clock
            raise FloatingPointError(
                f"The features of the images are not finite after step {clock.train_exp_counter}, "
                f"epoch {clock.train_exp_epochs - 1} (counted from 0): training has diverged. Try "
                "a lower learning rate."
            )
        return features

    def class_means(
        self, strategy: Strategy, *, flip: bool = False, model: nn.Module | None = None
    ) -> dict[int, Float[Tensor, "D"]]:
        """Mean feature of the exemplars of each class, for `evaluate`.

        Features are taken under the eval transform and scaled to unit length before and after
        averaging. Features that herding has just computed with this model are used again.

        Args:
            strategy: An Avalanche strategy.
            flip: Average with the mean over the mirrored images.
            model: The model whose features are used. By default that of the strategy.

        Returns:
            For each class id its mean of unit length, shape ``(D,)``.

        Raises:
            ValueError: If there are no exemplars yet.
        """
        if not len(self.memory):
            raise ValueError("HerdingReplayPlugin: no exemplars yet. Train a step first.")
        means = {class_id: features.mean(0) for class_id, features in self._fresh.items()}
        model = strategy.model if model is None else model
        means |= self._means(
            strategy,
            model,
            [class_id for class_id in self.memory.classes if class_id not in means],
            flip=False,
        )
        if flip:
            mirrored = self._means(strategy, model, self.memory.classes, flip=True)
            means = {class_id: (mean + mirrored[class_id]) / 2 for class_id, mean in means.items()}
        return {class_id: F.normalize(means[class_id], dim=0) for class_id in self.memory.classes}

    def _means(
        self, strategy: Strategy, model: nn.Module, class_ids: Sequence[int], *, flip: bool
    ) -> dict[int, Float[Tensor, "D"]]:
        """Mean of the unit features of the exemplars of these classes, in one pass."""
        if not class_ids:
            return {}
        data = concat_datasets(self.exemplars(class_ids))
        features = features_of(
            model,
            data,
            batch_size=strategy.eval_mb_size,
            device=strategy.device,
            flip=flip,
        )
        targets = torch.as_tensor(list(data.targets), device=features.device)
        indices = indices_by_class(targets, class_ids)
        return {
            class_id: F.normalize(features[indices[class_id]]).mean(0) for class_id in class_ids
        }

    def _check_budget(self, experience: Experience) -> None:
        """Raise before the first batch if the memory is too small for the known classes."""
        known = known_classes(experience) | set(self.memory.classes)
        if self.memory.total is not None and self.memory.total < len(known):
            raise ValueError(
                f"A memory of {self.memory.total} exemplars is too small for {len(known)} "
                "classes: you need at least one exemplar per class."
            )

    def find_sources(self, experience: Experience) -> None:
        """Find the data sets of earlier steps again after `load_state_dict`.

        Args:
            experience: Any experience of the benchmark that the exemplars come from.

        Raises:
            ValueError: If the benchmark has other sizes or labels.
        """
        for step in range(len(self.sources), len(self._source_ids)):
            dataset = experience_of(experience, self._source_ids[step]).dataset
            if len(dataset) != self._lengths[step]:
                raise ValueError(
                    f"The exemplars of step {step} stand in {self._lengths[step]} training images, "
                    f"the benchmark given has {len(dataset)} there."
                )
            self._check_labels(step, dataset)
            self.sources.append(dataset)

    def _check_labels(self, step: int, dataset: HostDataset) -> None:
        start = sum(self._lengths[:step])
        targets = torch.as_tensor(list(dataset.targets))
        for class_id, ranked in self.positions_of_class().items():
            indices = ranked[(ranked >= start) & (ranked < start + len(targets))] - start
            if (targets[indices] != class_id).any():
                raise ValueError(
                    f"The exemplars of class {class_id} have other labels in the benchmark "
                    "given: it is another one."
                )

    def positions_of_class(self) -> dict[int, Int[Tensor, "kept"]]:
        """The exemplars of each class.

        Returns:
            For each class id its positions, best first.
        """
        return {class_id: self.memory.of(class_id) for class_id in self.memory.classes}

    def state_dict(self) -> State:
        """The exemplars and where they come from, for `load_state_dict`.

        Returns:
            Plain values and tensors; no image.
        """
        return {
            "memory": self.memory.state_dict(),
            "source_ids": list(self._source_ids),
            "lengths": list(self._lengths),
        }

    def check_state(self, state: State) -> None:
        """Check that a state fits this plugin, before anything is loaded.

        Args:
            state: A dictionary from `state_dict`.

        Raises:
            ValueError: If the budget or the rule differs.
        """
        ExemplarMemory(**self.memory.settings()).load_state_dict(state["memory"])

    def load_state_dict(self, state: State) -> None:
        """Restore the exemplars; their images are found when the next step begins.

        Args:
            state: A dictionary from `state_dict`.

        Raises:
            ValueError: If the budget or the rule differs.
        """
        self.memory.load_state_dict(state["memory"])
        self.forget_features()
        if self._source_ids != state["source_ids"]:
            self.sources = []  # found again when the next experience comes
        self._source_ids, self._lengths = list(state["source_ids"]), list(state["lengths"])


def indices_by_class(
    targets: Int[Tensor, "n"], class_ids: Sequence[int]
) -> dict[int, Int[Tensor, "own"]]:
    """Where each class is in a list of class ids, in ascending order; sorted once for all classes.

    Args:
        targets: Class ids, shape ``(n,)``.
        class_ids: The classes wanted.

    Returns:
        For each class its indices into `targets`; empty for a class that is not among them.
    """
    order = targets.argsort(stable=True)
    ids = torch.as_tensor(list(class_ids), dtype=targets.dtype, device=targets.device)
    bounds = (
        torch.searchsorted(targets[order], ids, right=right).tolist() for right in (False, True)
    )
    return {
        class_id: order[start:end] for class_id, start, end in zip(class_ids, *bounds, strict=True)
    }


def exemplars_of(plugins: Iterable[object]) -> dict[int, Tensor]:
    """Ranked positions of the exemplars of each class in the herding memory among these plugins;
    empty where there is none.
    """
    memory = next((plugin for plugin in plugins if isinstance(plugin, HerdingReplayPlugin)), None)
    return {} if memory is None else memory.positions_of_class()


def checked_budget(
    mem_size: SupportsIndex | None, per_class: SupportsIndex | None
) -> dict[str, int]:
    """The budget as `ExemplarMemory` takes it, or a ValueError that names the argument."""
    if mem_size is not None and per_class is not None:
        raise ValueError(
            f"Give mem_size or per_class, not both; got mem_size={mem_size}, per_class={per_class}."
        )
    if per_class is not None:
        return {"per_class": whole_number("per_class", per_class)}
    return {"total": whole_number("mem_size", DEFAULT_MEMORY if mem_size is None else mem_size)}


def whole_number(name: str, value: SupportsIndex) -> int:
    """A number of exemplars, also one of numpy or torch."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or operator.index(value) < 1:
        raise ValueError(f"{name} must be a whole number of 1 or more, got {value!r}.")
    return operator.index(value)


def experience_of(experience: Experience, index: int) -> Experience:
    """The experience with this index in the stream of the benchmark.

    `experience` may come from a slice of that stream.
    """
    stream = experience.origin_stream
    whole = getattr(getattr(stream, "benchmark", None), "streams", {}).get(stream.name, stream)
    for other in whole:
        if other.current_experience == index:
            return other
    raise ValueError(
        f"The exemplars stand in experience {index} of the stream {stream.name!r}, which has "
        "none of that index."
    )


def refuse_second_memory(strategy: Strategy, plugin: HerdingReplayPlugin) -> None:
    """Raise a ValueError if the host or another plugin has a memory, or that is not known."""
    host, host_class = type(strategy).__name__, type(strategy)
    without = host_class is SupervisedTemplate or isinstance(strategy, HOSTS_WITHOUT_MEMORY)
    if not getattr(host_class, "takes_herding_replay", without):
        allowed = ", ".join(host.__name__ for host in HOSTS_WITHOUT_MEMORY)
        raise ValueError(
            f"HerdingReplayPlugin cannot act in {host}, which may train on the images of other "
            f"steps itself, or on those of the current step alone. It works in {allowed} and in "
            "the strategies of avalanche_hfc that train with exemplars. If your strategy keeps no "
            "images, declare takes_herding_replay = True in its class."
        )
    for other in strategy.plugins:
        if other is not plugin and (
            isinstance(other, HerdingReplayPlugin | AGEMPlugin)
            or any(hasattr(other, name) for name in MEMORY_NAMES)
        ):
            raise ValueError(
                f"{host} has two memories: HerdingReplayPlugin and {type(other).__name__}. "
                "Leave one out."
            )
