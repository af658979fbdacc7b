"""The values that were chosen on held-out training images, by row or method; those of the scales
small and medium. `experiments/tune.py` makes the trials.
"""

from collections.abc import Mapping

from avalanche_hfc.lab.options import Value

# The best of the trials of each row, in experiments/results/real-images/tuning/trials.csv. A row
# without an entry keeps the values of the protocol; rows with parts of HFC inside have those of
# their method.
TUNED: Mapping[str, Mapping[str, Value]] = {
    "hfc": {"train.lr": 2e-4, "method.relation_weight": 1.0},
    "hfc-paper": {"train.lr": 2e-4, "method.relation_weight": 2.0},
    "hfc-official": {"train.lr": 5e-4},
    "baseline": {"train.lr": 5e-4},
    "icarl": {"train.lr": 5e-4, "method.outputs": "softmax"},
    "bic": {"train.lr": 1e-3, "method.bias_lr": 0.1},
    "podnet": {"train.lr": 1e-3, "method.spatial_weight": 1.0, "method.tune_epochs": 20},
    "podnet-cscct": {
        "train.lr": 1e-3,
        "method.spatial_weight": 1.0,
        "method.clustering_weight": 3.0,
        "method.tune_epochs": 20,
        "method.tune_lr": 1e-3,
    },
    "ssil": {"train.lr": 1e-3, "method.lr_by_step": False},
    "foster": {"train.lr": 5e-4, "method.beta": 0.96},
    "afc": {"train.lr": 1e-3, "method.importance_weight": 1.0, "method.tune_epochs": 20},
    "dytox": {"train.lr": 2e-4, "method.divergence_weight": 0.1, "method.tune_epochs": 20},
    "finetune": {"train.lr": 5e-4},
    "herding-replay": {"train.lr": 5e-4},
    "joint": {"train.lr": 1e-3},
    "avalanche-replay": {"train.lr": 2e-4},
    "avalanche-lwf-fixed": {"train.lr": 1e-3, "method.alpha": 5.0},
    "avalanche-er_ace-fixed": {"train.lr": 5e-4},
    "avalanche-der-fixed": {"train.lr": 5e-4, "method.alpha": 0.1},
    "avalanche-icarl-fixed": {"train.lr": 5e-4},
    "avalanche-bic-fixed": {"train.lr": 5e-4, "method.lr": 0.01},
    "ranpac": {"method.num_features": 2000, "method.ridge": 100.0},
    "frozen-replay": {"train.lr": 0.2},
    "wa": {"train.lr": 5e-4, "method.clip_weights": False},
}
