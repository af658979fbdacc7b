"""Backbones, heads that grow with the classes, and weight files."""

from avalanche_hfc.models.adapters import AdaptedBlock, Adapter
from avalanche_hfc.models.bias import BiasLayer, CorrectedHead
from avalanche_hfc.models.boosted import BoostedHead, BoostedNetwork
from avalanche_hfc.models.closed_form import ClassMeanHead, RandomFeatureHead
from avalanche_hfc.models.convit import ConViTEncoder
from avalanche_hfc.models.cosine import CosineHead
from avalanche_hfc.models.dytox import DyToxModel, StepHead, TaskTokens
from avalanche_hfc.models.encoder import ViTEncoder
from avalanche_hfc.models.features import EmbeddingModel, Features
from avalanche_hfc.models.heads import UNSEEN_LOGIT, AllClassesLinear, GrowingLinear
from avalanche_hfc.models.imprinting import proxy_centres
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
