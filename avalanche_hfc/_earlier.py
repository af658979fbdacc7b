"""What runs of version 0.1 do not say: options that came later, with the values by which that
version trained.
"""

SINCE_0_1: dict[str, bool | int | float | None] = {
    "data.train_per_class": None,
    "data.test_per_class": None,
    "data.num_classes": None,
    "data.hold_out": None,
    "train.decay_all": True,
    "train.schedule_delay": 0,
    "train.micro_batch": None,
    "model.stage_relu": None,
    "method.reset_optimizer": False,
    "method.drop_last": False,
    "method.optimizer_quirks": False,
    "method.normalise": None,
    "method.average": None,
    "method.prototypes": None,
    "method.gradient_weights": None,
    "method.repeats": 1,
    "method.scale_lr": 0.1,  # the scale of a cosine head followed the optimizer's rate
}
OF_EVERY_RECIPE = (
    "train.micro_batch",
)  # of them, those without which there are runs of this version
