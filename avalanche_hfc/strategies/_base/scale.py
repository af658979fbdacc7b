"""The update rule of the scale η of a cosine head, as PODNet and AFC train it."""

from torch.nn import Parameter
from torch.optim import SGD

from avalanche_hfc._types import State


class ScaleRule:
    """SGD with momentum 0.9 and weight decay 5e-4. It takes the gradient away with it: the
    optimizer that follows leaves η alone.
    """

    def __init__(self, scale: Parameter):
        self.scale = scale
        self.optimizer = SGD([scale], lr=0.0, momentum=0.9, weight_decay=5e-4)

    def step(self, lr: float) -> None:
        self.optimizer.param_groups[0]["lr"] = lr
        self.optimizer.step()
        self.scale.grad = None

    def clear(self) -> None:
        """Forget the momentum."""
        self.optimizer.state.clear()

    def state_dict(self) -> State:
        return self.optimizer.state_dict()

    def load_state_dict(self, state: State) -> None:
        self.optimizer.load_state_dict(state)
