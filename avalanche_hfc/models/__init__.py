"""TSAViT, its parts, the growing head, and weight files."""

from avalanche_hfc.models.adapters import AdaptedBlock, Adapter
from avalanche_hfc.models.heads import UNSEEN_LOGIT, GrowingLinear
from avalanche_hfc.models.tsa import TSABlock
from avalanche_hfc.models.vit import Features, TSAViT
from avalanche_hfc.models.weights import LoadReport, load_weights

__all__ = ["TSAViT", "Features", "TSABlock", "Adapter", "AdaptedBlock", "GrowingLinear", "UNSEEN_LOGIT", "load_weights", "LoadReport"]
