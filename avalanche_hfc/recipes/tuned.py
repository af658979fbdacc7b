"""The values that were chosen on held-out training images, by row or method; those of the scales
small and medium. `experiments/tune.py` makes the trials.
"""

from collections.abc import Mapping

from avalanche_hfc.recipes.options import Value

# "podnet": {"train.lr": 1e-3, "method.spatial_weight": 3.0}; a method without an entry keeps the
# values of the protocol. Rows with the losses of HFC inside have those of their method.
TUNED: Mapping[str, Mapping[str, Value]] = {}
