"""Backbones, heads that grow with the classes, and weight files.

Public names load when first used: a model brings its own parts, not those of the others.
"""

from typing import TYPE_CHECKING

from avalanche_hfc._names import imported_when_used

if TYPE_CHECKING:
    from avalanche_hfc.models.bias import BiasLayer, CorrectedHead
    from avalanche_hfc.models.boosted import BoostedHead, BoostedNetwork
    from avalanche_hfc.models.closed_form import ClassMeanHead, RandomFeatureHead
    from avalanche_hfc.models.convit import ConViTEncoder
    from avalanche_hfc.models.cosine import CosineHead, proxy_centres
    from avalanche_hfc.models.dytox import DyToxModel, StepHead, TaskTokens
    from avalanche_hfc.models.encoder import AdaptedBlock, Adapter, ViTEncoder
    from avalanche_hfc.models.features import EmbeddingModel, Features
    from avalanche_hfc.models.heads import UNSEEN_LOGIT, AllClassesLinear, GrowingLinear
    from avalanche_hfc.models.resnet import ResNet18, ResNet32
    from avalanche_hfc.models.tsa import TSABlock
    from avalanche_hfc.models.vit import TSAViT, ViT
    from avalanche_hfc.models.weights import LoadReport, load_weights

__all__ = [
    "TSAViT",
    "ViT",
    "ResNet32",
    "ResNet18",
    "DyToxModel",
    "ConViTEncoder",
    "ViTEncoder",
    "EmbeddingModel",
    "Features",
    "TSABlock",
    "Adapter",
    "AdaptedBlock",
    "TaskTokens",
    "StepHead",
    "GrowingLinear",
    "AllClassesLinear",
    "CosineHead",
    "BiasLayer",
    "CorrectedHead",
    "BoostedHead",
    "BoostedNetwork",
    "ClassMeanHead",
    "RandomFeatureHead",
    "UNSEEN_LOGIT",
    "proxy_centres",
    "load_weights",
    "LoadReport",
]

__getattr__ = imported_when_used(
    __name__,
    {
        "bias": "BiasLayer CorrectedHead",
        "boosted": "BoostedHead BoostedNetwork",
        "closed_form": "ClassMeanHead RandomFeatureHead",
        "convit": "ConViTEncoder",
        "cosine": "CosineHead proxy_centres",
        "dytox": "DyToxModel StepHead TaskTokens",
        "encoder": "AdaptedBlock Adapter ViTEncoder",
        "features": "EmbeddingModel Features",
        "heads": "UNSEEN_LOGIT AllClassesLinear GrowingLinear",
        "resnet": "ResNet18 ResNet32",
        "tsa": "TSABlock",
        "vit": "TSAViT ViT",
        "weights": "LoadReport load_weights",
    },
)


def __dir__() -> list[str]:
    return sorted(__all__)
