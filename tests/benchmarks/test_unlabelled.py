"""Images for pre-training: read without labels, from what users have, and cropped at random."""

import re

import numpy as np
import pytest
import torch
from PIL import Image

from avalanche_hfc.benchmarks.transforms import PlainTransform
from avalanche_hfc.benchmarks.unlabelled import random_crops, read_unlabelled


def pictures(count, side=8, seed=0):
    return np.random.RandomState(seed).randint(0, 256, (count, side, side, 3), dtype=np.uint8)


def test_an_npz_file_gives_its_training_images_and_says_what_it_ignores(tmp_path):
    x = pictures(5)
    np.savez(tmp_path / "a.npz", x_train=x)
    found = read_unlabelled(tmp_path / "a.npz", 8)
    assert torch.equal(found.images, torch.from_numpy(x).permute(0, 3, 1, 2))
    assert found.remarks == ()
    np.savez(tmp_path / "b.npz", x_train=x / 255, y_train=np.arange(5), x_test=pictures(2))
    labelled = read_unlabelled(tmp_path / "b.npz", 8)
    assert labelled.remarks == ("Ignored: y_train, x_test; only x_train is read.",)
    assert labelled.digest() == found.digest()  # floats in [0, 1] are the same pixels


def test_a_folder_is_read_at_any_depth_and_mixed_sizes_are_resized_and_said(tmp_path):
    (tmp_path / "photos" / "cats").mkdir(parents=True)
    x = pictures(2)
    Image.fromarray(x[0]).save(tmp_path / "photos" / "one.png")
    Image.fromarray(x[1]).save(tmp_path / "photos" / "cats" / "two.png")
    same = read_unlabelled(tmp_path / "photos", 8)
    assert sorted(image.sum().item() for image in same.images) == sorted(
        image.sum() for image in x.astype(int)
    )
    assert same.remarks == ("Folder names are ignored: pre-training uses no labels.",)
    Image.new("L", (20, 10), 77).save(tmp_path / "photos" / "wide.png")
    mixed = read_unlabelled(tmp_path / "photos", 8)
    assert mixed.images.shape == (3, 3, 8, 8)
    assert mixed.remarks[1] == "Images of 8 × 8, 20 × 10 pixels are resized to 8 × 8."
    assert any((image == 77).all() for image in mixed.images)
    for side in (4, 6):
        Image.new("L", (side, side), 77).save(tmp_path / "photos" / f"{side}.png")
    listed = r"4 × 4, 6 × 6, 8 × 8 … \(4 in all\) pixels are resized to 8 × 8"
    assert re.search(listed, read_unlabelled(tmp_path / "photos", 8).remarks[1])


def test_test_images_of_a_folder_are_not_read(tmp_path):
    for part in ("train", "test"):
        (tmp_path / part / "ant").mkdir(parents=True)
        Image.new("RGB", (8, 8), (9 if part == "train" else 200,) * 3).save(
            tmp_path / part / "ant" / "0.png"
        )
    found = read_unlabelled(tmp_path, 8)
    assert len(found.images) == 1 and (found.images == 9).all()
    assert f"Only {tmp_path / 'train'} is read." in found.remarks


def test_what_is_no_collection_of_images_is_refused_with_its_name(tmp_path):
    with pytest.raises(FileNotFoundError, match="No folder or npz file .*nowhere"):
        read_unlabelled(tmp_path / "nowhere", 8)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="empty: 0 images"):
        read_unlabelled(tmp_path / "empty", 8)
    np.savez(tmp_path / "labels.npz", y_train=np.arange(3))
    with pytest.raises(ValueError, match="labels.npz: lacks x_train; it holds y_train"):
        read_unlabelled(tmp_path / "labels.npz", 8)
    (tmp_path / "text.npz").write_text("text")
    with pytest.raises(ValueError, match="text.npz: not an npz file"):
        read_unlabelled(tmp_path / "text.npz", 8)


def test_a_whole_crop_is_the_plain_transform_and_a_mirrored_one_its_mirror():
    images = torch.from_numpy(pictures(2)).permute(0, 3, 1, 2)
    draws = torch.tensor([[0.3, 0.7, 0.1, 0.9, 0.8], [0.3, 0.7, 0.1, 0.9, 0.2]])
    plain = PlainTransform(8)(images)
    expected = torch.stack([plain[0], plain[1].flip(-1)])
    torch.testing.assert_close(random_crops(images, draws, 1.0), expected, atol=1e-5, rtol=0)


def test_a_crop_shows_the_part_that_its_draws_name():
    """The area and the place of a crop, read off a ramp from left to right and one downwards."""
    ramp = torch.arange(64).mul(4).byte().expand(64, 64)
    images = torch.stack([ramp, ramp.T, ramp]).expand(2000, 3, 64, 64)
    draws = torch.rand(2000, 5)
    crops = random_crops(images, draws, 0.25)
    spans = [
        (crops[:, channel].amax((1, 2)) - crops[:, channel].amin((1, 2))) / 2 for channel in (0, 1)
    ]
    area = spans[0] * spans[1]
    assert area.min() > 0.15 and area.max() < 1.01 and 0.5 < area.mean() < 0.7
    rising = crops[:, 0, 32, 40] > crops[:, 0, 32, 20]
    assert torch.equal(rising, draws[:, 4] >= 0.5)
    middle = crops[:, 1].mean((1, 2))
    assert torch.corrcoef(torch.stack([middle, draws[:, 3]]))[0, 1] > 0.8
