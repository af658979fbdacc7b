from avalanche_hfc.strategies import HerdingReplay


class Scaled(HerdingReplay):
    def __init__(self, *, factor: float = 1.0, **kwargs):
        super().__init__(**kwargs)
        self.factor = factor

    def classification(self, logits, targets, steps):
        return self.factor * super().classification(logits, targets, steps)
