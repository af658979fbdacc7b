"""The objective of the masked autoencoder against a loop, and what it must not depend on."""

import statistics

import pytest
import torch
from watches import SeesAutocast

from avalanche_hfc.losses.reconstruction import masked_reconstruction, normalised_patches


def test_it_is_the_mean_squared_error_to_pixels_normalised_patch_by_patch():
    predicted, patches = torch.randn(3, 4, 6).double(), torch.rand(3, 4, 6).double()
    errors = []
    for image in range(3):
        for patch in range(4):
            pixels = patches[image, patch].tolist()
            mean, spread = statistics.mean(pixels), statistics.stdev(pixels)
            errors += [
                (guess - (pixel - mean) / spread) ** 2
                for guess, pixel in zip(predicted[image, patch].tolist(), pixels, strict=True)
            ]
    found = masked_reconstruction(predicted, patches).item()
    assert found == pytest.approx(statistics.mean(errors), rel=1e-4)  # 1e-6 is added to a variance


def test_brightness_and_contrast_of_a_patch_do_not_matter_and_a_uniform_patch_is_0():
    predicted, patches = torch.randn(2, 3, 48), torch.rand(2, 3, 48)
    other = patches * torch.rand(2, 3, 1).add(0.5) + torch.randn(2, 3, 1)
    torch.testing.assert_close(
        masked_reconstruction(predicted, patches),
        masked_reconstruction(predicted, other),
        rtol=1e-3,
        atol=0,
    )
    assert not normalised_patches(torch.full((1, 2, 5), 0.3)).any()


def test_gradients_reach_the_prediction_and_not_the_pixels():
    predicted, patches = (torch.rand(2, 3, 5, requires_grad=True) for _ in range(2))
    masked_reconstruction(predicted, patches).backward()
    assert predicted.grad.any() and patches.grad is None


def test_autocast_around_it_changes_no_bit_and_reaches_no_operation():
    predicted, patches = torch.randn(2, 3, 5), torch.rand(2, 3, 5)
    expected = masked_reconstruction(predicted, patches)
    with torch.autocast("cpu", dtype=torch.bfloat16), SeesAutocast() as watch:
        found = masked_reconstruction(predicted, patches)
        assert watch.inside == []
        predicted @ patches.mT
        assert watch.inside  # the watch works, and the caller's autocast is back
    assert torch.equal(found, expected)
