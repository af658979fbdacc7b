"""What the encoder of a masked autoencoder sees, and where its predictions belong."""

import pytest
import torch

from avalanche_hfc.models import ViTEncoder
from avalanche_hfc.models.masked_autoencoder import MaskedAutoencoder

OPTIONS = {"embed_dim": 24, "num_heads": 3}


def autoencoder(**options):
    torch.manual_seed(1)
    encoder = ViTEncoder(
        "vit_tiny_patch16_224",
        image_size=(8, 16),
        patch_size=4,
        msa_blocks=2,
        backbone_options=OPTIONS,
    )
    return MaskedAutoencoder(encoder, **{"decoder_blocks": 1, "decoder_dim": 12, **options}).eval()


def noise(count=3):
    return torch.rand(count, 8, generator=torch.Generator().manual_seed(3))


def test_pixels_of_masked_patches_change_no_prediction_and_those_of_visible_ones_do():
    model, x = autoencoder(), torch.randn(3, 3, 8, 16)
    predicted, masked = model(x, noise())
    hidden = model.with_patches(x, masked, torch.randn(3, 6, 48))
    assert not torch.equal(hidden, x)
    assert torch.equal(model(hidden, noise()).predicted, predicted)
    visible = noise().argsort(1)[:, :2]
    shown = model.with_patches(x, visible, torch.randn(3, 2, 48))
    assert (model(shown, noise()).predicted != predicted).flatten(1).any(1).all()


def test_patches_are_cut_row_by_row_and_put_back_where_they_were():
    model, x = autoencoder(), torch.randn(2, 3, 8, 16)
    patches = model.patches(x)
    for number in range(8):
        top, left = 4 * (number // 4), 4 * (number % 4)
        assert torch.equal(patches[:, number], x[:, :, top : top + 4, left : left + 4].flatten(1))
    masked = torch.tensor([[5, 0], [7, 2]])
    assert torch.equal(model.masked_patches(x, masked)[1, 0], patches[1, 7])
    assert torch.equal(model.with_patches(x, masked, model.masked_patches(x, masked)), x)


def test_a_prediction_belongs_to_the_patch_it_is_named_for():
    """The position of a masked patch is all the decoder knows of it, and without blocks, which mix
    the patches, it decides this one prediction.
    """
    model, x = autoencoder(decoder_blocks=0), torch.randn(3, 3, 8, 16)
    predicted, masked = model(x, noise())
    for patch in range(8):
        with torch.no_grad():
            model.positions[:, 1 + patch, 0] += 1.0  # behind the class token
        again = model(x, noise()).predicted
        assert torch.equal((again != predicted).any(-1), masked == patch)
        predicted = again


def test_training_on_one_image_reconstructs_it():
    model, x = autoencoder().train(), torch.rand(1, 3, 8, 16)
    from avalanche_hfc.losses.reconstruction import masked_reconstruction

    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(150):
        predicted, masked = model(x, noise(1))
        loss = masked_reconstruction(predicted, model.masked_patches(x, masked))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.05


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"mask_ratio": 0.99}, "mask_ratio 0.99 masks 8 of 8 patches"),
        ({"mask_ratio": 0.01}, "masks 0 of 8 patches"),
        ({"decoder_heads": 5}, "decoder_dim 12 is not a multiple of decoder_heads 5"),
    ],
)
def test_what_cannot_be_masked_or_divided_is_refused(options, said):
    with pytest.raises(ValueError, match=said):
        autoencoder(**options)
