"""What `hfc data check` names in a folder of images or an npz file, and that training agrees."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from avalanche_hfc.benchmarks import split_folder
from avalanche_hfc.benchmarks.check import check_data, check_folder
from avalanche_hfc.lab.cli.look import data


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
    assert (result.num_images, result.class_names, result.findings, len(ticks)) == (
        5,
        ("ant", "bee"),
        (),
        5,
    )


def spoilt(folder):
    """A folder with every kind of fault and remark."""
    (folder / "train/ant/broken.jpg").write_bytes(b"no image")
    (folder / "train/ant/nothing.png").write_bytes(b"")
    (folder / "train/bee/notes.txt").write_text("x")
    (folder / "train/bee/line\rbreak.png").write_bytes(b"x")
    (folder / "train/bee/nowhere.png").symlink_to(folder / "gone")
    os.mkfifo(folder / "train/bee/pipe.png")
    (folder / "test/readme.md").write_text("x")
    (folder / "train/cat").mkdir()
    picture(folder / "train/dog/f.png", 7)
    picture(folder / "test/bee/small.png", 8, size=(15, 40))
    Image.new("RGB", (5001, 5000), "red").save(folder / "test/bee/huge.png")
    picture(folder / "train/bee/grey.png", 9, grey=True)
    picture(folder / "test/ant/again.bmp", 0)  # the pixels of train/ant/a.png in another format
    picture(folder / "train/ant/z.bmp", 1)
    picture(folder / "train/bee/z.bmp", 1)
    (folder / "train/.hidden").mkdir()
    for junk in ("train/Thumbs.db", "test/ant/desktop.ini", "train/ant/.DS_Store"):
        (folder / junk).write_text("x")
    picture(folder / "train/__MACOSX/ant/a.png", 3)


def test_each_fault_is_named_with_its_place(folder):
    spoilt(folder)
    assert found(folder) == {
        "not an image by its name": (("train/bee/notes.txt",), True),
        "not a regular file": (("train/bee/nowhere.png", "train/bee/pipe.png"), True),
        "a name with control characters or undecodable bytes": (
            ("train/bee/line\\rbreak.png",),
            True,
        ),
        "a file beside the class folders": (("test/readme.md",), True),
        "a class without an image": (("train/cat",), True),
        "a class that test/ lacks": (("train/cat", "train/dog"), True),
        "an empty file": (("train/ant/nothing.png",), True),
        "cannot be read": (("train/ant/broken.jpg (not an image in a known format)",), True),
        "an image of less than 16 pixels": (("test/bee/small.png",), False),
        "an image of more than 25 megapixels, which slows training down": (
            ("test/bee/huge.png",),
            False,
        ),
        "a grey image among coloured ones": (("train/bee/grey.png",), False),
        "a test image that is a training image as well": (
            ("test/ant/again.bmp = train/ant/a.png",),
            False,
        ),
        "the same image twice in a class": (("train/ant/z.bmp = train/ant/b.png",), False),
        "the same image in two classes": (("train/bee/z.bmp = train/ant/b.png",), False),
    }
    with pytest.raises(ValueError) as error:
        split_folder(folder, num_steps=1)
    for name in ("notes.txt", "pipe.png", "readme.md", "train/cat", "train/dog", "broken.jpg"):
        assert name in str(error.value)
    assert "\n" not in str(error.value) and "\r" not in str(error.value)


def test_bad_files_are_left_out_where_that_is_asked_for_and_junk_always(folder):
    spoilt(folder)
    (folder / "train/cat").rmdir()
    (folder / "train/dog").rename(folder / "test/.dog")
    benchmark = split_folder(folder, num_steps=1, skip_bad=True)
    names = [name.split(": ")[0] for name in benchmark.left_out]
    assert sorted(names) == [
        "test/readme.md",
        "train/ant/broken.jpg (not an image in a known format)",
        "train/ant/nothing.png",
        "train/bee/line\\rbreak.png",
        "train/bee/notes.txt",
        "train/bee/nowhere.png",
        "train/bee/pipe.png",
    ]
    assert len(benchmark.train_stream[0].dataset) == 6 and "7 bad files" in benchmark.remarks[1]
    assert check_folder(folder, skip_bad=True).junk == (
        "train/.hidden",
        "train/Thumbs.db",
        "train/__MACOSX",
        "train/ant/.DS_Store",
        "test/.dog",
        "test/ant/desktop.ini",
    )


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda root: None, "no class folder"),
        (lambda root: picture(root / "ant/a.png"), "a class with one image only, where"),
        (lambda root: picture(root / "test/ant/a.png"), "test/ without train/"),
        (lambda root: picture(root / "a\x07b/a.png"), "a name with control characters"),
        (lambda root: picture(root / os.fsdecode(b"a\xff") / "a.png"), "a name with control"),
    ],
)
def test_check_and_training_refuse_the_same(tmp_path, make, what):
    make(tmp_path)
    assert any(one.what.startswith(what) and one.stops for one in check_folder(tmp_path).findings)
    with pytest.raises(ValueError, match=f"cannot be used: .*{what}") as error:
        split_folder(tmp_path, num_steps=1)
    str(error.value).encode()  # a message that any terminal can show


def test_links_in_circles_end_and_images_behind_links_count_once(folder):
    for number in range(2):
        (folder / "train/ant" / f"self{number}").symlink_to(folder / "train/ant")
        (folder / "train/bee" / f"up{number}").symlink_to(folder)
    (folder / "train/bee/loop").symlink_to(folder / "train/bee/loop")
    result = check_folder(folder, skip_bad=True)
    assert result.num_images == 5 and result.left_out == ("train/bee/loop: not a regular file",)


def test_copies_are_found_in_an_npz_file_and_its_faults_stop(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (6, 20, 20, 3), dtype=np.uint8)
    labels = np.array([0, 1, 0])
    pixels[4] = pixels[0]
    np.savez(
        tmp_path / "own.npz", x_train=pixels[:3], y_train=labels, x_test=pixels[3:], y_test=labels
    )
    result = check_data(tmp_path / "own.npz")
    assert (result.num_images, result.class_names, result.stops) == (6, ("0", "1"), False)
    assert [(one.what, one.where) for one in result.findings] == [
        ("the same image in two classes", ("x_test[1] = x_train[0]",))
    ]
    np.savez(
        tmp_path / "own.npz",
        x_train=pixels[:3],
        y_train=labels,
        x_test=pixels[3:],
        y_test=labels * 0,
    )
    said = CliRunner().invoke(data, ["check", str(tmp_path / "own.npz")])
    assert said.exit_code == 1 and "labels 1 are in one of y_train and y_test only" in said.output


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
    told = json.loads(CliRunner().invoke(data, ["check", str(folder), "--json"]).output)
    assert (told["images"], told["classes"], told["usable"]) == (5, ["ant", "bee"], False)
    assert [(one["what"], len(one["where"])) for one in told["findings"]] == [("cannot be read", 7)]
    skipped = CliRunner().invoke(data, ["check", str(folder), "--skip-bad"])
    assert skipped.exit_code == 0 and "left out cannot be read: 7" in skipped.output


def test_the_command_needs_neither_torch_nor_avalanche(folder):
    code = (
        "import sys; from avalanche_hfc.lab.cli import commands\n"
        f"try: commands(['data', 'check', {str(folder)!r}])\n"
        "finally: print(*{'torch', 'avalanche', 'timm', 'pandas'} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "Nothing found." in result.stdout and result.stdout.splitlines()[-1] == ""
