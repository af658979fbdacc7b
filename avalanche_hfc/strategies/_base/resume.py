"""Where a training is: within which step, in whose callback. A state needs it to resume."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from avalanche_hfc._types import Experience, State, Strategy
from avalanche_hfc.plugins.steps import StepTable


class Resume(Protocol):
    """A loaded state of an interrupted step that has not been resumed yet."""

    state: State

    def check(self, experience: Experience, table: StepTable) -> None: ...

    def restore(self, strategy: Strategy) -> None: ...


class StepProgress:
    """`turn` is (event, index of the plugin) while plugins are called one by one between epochs or
    at the end of a step.
    """

    def __init__(self) -> None:
        self.in_step = False
        self.evaluating = False
        self.turn: tuple[str, int] | None = None
        self.resume: Resume | None = None
        self.saved_phase: State | None = None  # of the state that is resumed
        self._had_turn: dict[
            str, int
        ] = {}  # event -> plugins that had their turn before the state was saved

    def restore_step(self, strategy: Strategy) -> str | None:
        """Restore what the start of the step has reset. The event in which the state was saved;
        None in a step from its start.
        """
        if self.resume is None:
            return None
        resume, self.resume = self.resume, None
        resume.restore(strategy)
        event, finished = resume.state["turn"]
        self._had_turn = {event: finished}
        self.saved_phase = resume.state["phase"]
        return event

    def take_phase(self) -> State | None:
        """The state of the phase in which the state was saved, once."""
        saved, self.saved_phase = self.saved_phase, None
        return saved

    def take_turns(
        self, strategy: Strategy, event: str, skip: type | tuple = (), **kwargs: object
    ) -> None:
        """Call `event` of every plugin; after `restore_step`, once, of those that have not had
        their turn.
        """
        first = self._had_turn.pop(event, 0)
        try:
            for index, plugin in enumerate(strategy.plugins[first:], first):
                self.turn = (event, index)
                if hasattr(plugin, event) and not isinstance(plugin, skip):
                    getattr(plugin, event)(strategy, **kwargs)
        finally:
            self.turn = None

    @contextmanager
    def evaluation(self) -> Iterator[None]:
        outer, self.evaluating = self.evaluating, True
        try:
            yield
        finally:
            self.evaluating = outer

    def saving_turn(self) -> list | None:
        """[event, plugins that have had their turn] for the state; None between steps. A
        RuntimeError where no state can be taken.
        """
        if self.evaluating or (self.in_step and self.turn is None):
            where = (
                "an evaluation" if self.evaluating else "an epoch, or in a step that an error ended"
            )
            raise RuntimeError(
                f"state_dict: not inside {where}. Call it between steps, or in "
                "before_training_epoch, after_training_epoch, "
                "before_phase_epoch, after_phase_epoch or after_training_exp of a plugin."
            )
        return [self.turn[0], self.turn[1] + 1] if self.in_step and self.turn is not None else None
