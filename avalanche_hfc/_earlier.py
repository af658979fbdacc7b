"""What runs of version 0.1 do not say: options that came later, with the values by which that
version trained.
"""

SINCE_0_1: dict[str, bool | int | float | str | None] = {
    "data.train_per_class": None,
    "data.test_per_class": None,
    "data.num_classes": None,
    "data.hold_out": None,
    "train.decay_all": True,
    "train.schedule_delay": 0,
    "train.checkpoint_activations": False,
    "train.precision": "float32",
    "train.compile": False,
    "train.tf32": False,
    "train.channels_last": False,
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
# of every recipe; runs of this version from before do not say them either
ON_HARDWARE = (
    "train.checkpoint_activations",
    "train.precision",
    "train.compile",
    "train.tf32",
    "train.channels_last",
)
