"""What `check_folder` names in a folder of images."""

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from avalanche_hfc.benchmarks.check import check_folder
from avalanche_hfc.cli.data import data


def picture(path, seed=0, size=(20, 24), grey=False):
    path.parent.mkdir(parents=True, exist_ok=True)
    values = np.random.default_rng(seed).integers(
        0, 256, (size[1], size[0], 1 if grey else 3), dtype=np.uint8
    )
    Image.fromarray(np.repeat(values, 3, 2) if grey else values).save(path)


@pytest.fixture
def folder(tmp_path):
    for seed, place in enumerate(
        ["train/ant/a", "train/ant/b", "train/bee/c", "test/ant/d", "test/bee/e"]
    ):
        picture(tmp_path / f"{place}.png", seed)
    return tmp_path


def found(folder):
    return {
        finding.what: (finding.where, finding.stops) for finding in check_folder(folder).findings
    }


def test_a_sound_folder_has_no_finding(folder):
    ticks = []
    result = check_folder(folder, tick=lambda: ticks.append(1))
    assert (result.num_images, result.num_classes, result.findings, len(ticks)) == (5, 2, (), 5)


def test_each_fault_is_named_with_its_place(folder):
    (folder / "train/ant/broken.jpg").write_bytes(b"no image")
    (folder / "train/ant/nothing.png").write_bytes(b"")
    (folder / "train/bee/notes.txt").write_text("x")
    (folder / "test/readme.md").write_text("x")
    (folder / "train/cat").mkdir()
    picture(folder / "train/dog/f.png", 7)
    picture(folder / "test/bee/small.png", 8, size=(15, 40))
    picture(folder / "train/bee/grey.png", 9, grey=True)
    picture(folder / "test/ant/again.bmp", 0)  # the pixels of train/ant/a.png in another format
    (folder / "train/.hidden").mkdir()
    assert found(folder) == {
        "not an image by its name": (("train/bee/notes.txt",), True),
        "a file beside the class folders": (("test/readme.md",), True),
        "a class without an image": (("train/cat",), True),
        "a class that test/ lacks": (("train/cat", "train/dog"), True),
        "an empty file": (("train/ant/nothing.png",), True),
        "cannot be read": (("train/ant/broken.jpg",), True),
        "an image of less than 16 pixels": (("test/bee/small.png",), False),
        "a grey image among coloured ones": (("train/bee/grey.png",), False),
        "a test image that is a training image as well": (("test/ant/again.bmp",), False),
    }


def test_grey_images_are_no_fault_where_all_are_grey(tmp_path):
    for seed, name in enumerate("abc"):
        picture(tmp_path / name / "1.png", seed, grey=True)
    assert found(tmp_path) == {}


def test_lucirs_imagenet_is_named(tmp_path):
    from avalanche_hfc.benchmarks.orders import lucir_imagenet100_synsets

    for part in ("train", "val"):
        for synset in lucir_imagenet100_synsets():
            (tmp_path / part / synset).mkdir(parents=True)
    assert any("seed 1993" in what for what in found(tmp_path))


def test_the_command_says_what_it_found_and_ends_with_1_where_training_would_stop(folder):
    sound = CliRunner().invoke(data, ["check", str(folder)])
    assert (
        sound.exit_code == 0
        and "5 images in 2 classes" in sound.output
        and "Nothing found." in sound.output
    )
    for number in range(7):
        (folder / f"train/ant/{number}.jpg").write_bytes(b"no image")
    broken = CliRunner().invoke(data, ["check", str(folder)])
    assert (
        broken.exit_code == 1
        and "cannot be read: 7" in broken.output
        and "and 2 more" in broken.output
    )
    assert "6.jpg" in CliRunner().invoke(data, ["check", str(folder), "--all"]).output
    missing = CliRunner().invoke(data, ["check", str(folder / "none")])
    assert isinstance(missing.exception, FileNotFoundError) and "No folder" in str(
        missing.exception
    )
