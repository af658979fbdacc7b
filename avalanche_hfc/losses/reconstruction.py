"""The objective of a masked autoencoder (He et al., CVPR 2022).

`b` images of `N` patches, `m` of them masked, `P` numbers in a patch.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from avalanche_hfc.losses._common import outside_autocast

EPS = 1e-6  # added to the variance of a patch, which is 0 where the patch is uniform


def normalised_patches(patches: Float[Tensor, "b m P"]) -> Float[Tensor, "b m P"]:
    """Each patch with mean 0 and variance 1 over its pixels.

    Args:
        patches: Pixels of each patch.

    Returns:
        The patches minus their mean, divided by the square root of their unbiased variance plus
        1e-6. A uniform patch is 0.

    Example:
        >>> normalised_patches(torch.tensor([[[1.0, 2.0, 3.0]]]))
        tensor([[[-1.0000,  0.0000,  1.0000]]])
    """
    variance, mean = torch.var_mean(patches, dim=-1, keepdim=True)
    return (patches - mean) / (variance + EPS).sqrt()


def masked_reconstruction(
    predicted: Float[Tensor, "b m P"], patches: Float[Tensor, "b m P"]
) -> Float[Tensor, ""]:
    """Mean squared error between the predictions for the masked patches and their normalised
    pixels.

    Args:
        predicted: Output of the decoder for the masked patches.
        patches: Pixels of the same patches; no gradient flows into them.

    Returns:
        The mean over images, masked patches and pixels. Predicting 0 everywhere gives about 1.

    Example:
        >>> patches = torch.tensor([[[1.0, 2.0, 3.0]]])
        >>> masked_reconstruction(torch.tensor([[[-1.0, 0.0, 4.0]]]), patches)
        tensor(3.0000)
    """
    with outside_autocast(predicted):
        return (predicted - normalised_patches(patches.detach())).square().mean()
