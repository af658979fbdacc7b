"""Folders of images and npz files as people have them, through the commands."""

import json
import os
import shutil

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from image_folders import COLOURS, content, hfc, make_folder, noisy
from PIL import Image

from avalanche_hfc.benchmarks import check
from avalanche_hfc.lab import override, recipe
from avalanche_hfc.lab.cli import commands
from avalanche_hfc.lab.data import build_benchmark
from avalanche_hfc.lab.overrides import with_data
from avalanche_hfc.lab.run_folder import recipe_checksum

OLD, NEW = list(COLOURS)[:3], list(COLOURS)[3:4]
SHORT = ("--image-size", "16", "--epochs", "1", "--batch-size", "8")
RUN = ("run", "folder-t2@demo", *SHORT)
NAME = "folder-b0-t2-hfc@demo"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """images/ of three classes, new/, and a finished run in runs/."""
    root = tmp_path_factory.mktemp("images")
    make_folder(root / "images", OLD)
    make_folder(root / "new", NEW)
    (root / "images" / "Thumbs.db").write_text("x")
    result = CliRunner().invoke(
        commands, [*RUN, "--data", str(root / "images"), "--out", str(root / "runs")]
    )
    assert result.exit_code == 0, result.output
    return root, result.stderr


@pytest.fixture
def copied(trained, tmp_path):
    """A copy of all, whose run knows its images at their new place."""
    root = tmp_path / "copy"
    shutil.copytree(trained[0], root)
    hold(root, lambda note: note["recipe"]["own"].update(data=str(root / "images")))
    return root


def hold(root, change):
    path = root / "runs" / NAME / "0" / "recipe.json"
    note = json.loads(path.read_text())
    change(note)
    note["sha256"] = recipe_checksum(note)
    path.write_text(json.dumps(note))


def unfinish(root):
    hold(root, lambda note: note.pop("finished"))


def again(root, *options):
    return hfc(*RUN, "--data", root / "images", "--out", root / "runs", *options)


def paint_over(path, keep_time=False):
    """Other pixels in a file of the same length."""
    status = path.stat()
    whole = bytearray(path.read_bytes())
    Image.fromarray(255 - np.asarray(Image.open(path))).save(path, compress_level=0)
    if keep_time:
        path.write_bytes(bytes(whole[:-1]) + bytes([whole[-1] ^ 1]))  # still decodes: CRC of IEND
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


# Steps, order and memory


def test_an_uneven_run_says_its_steps_memory_and_what_it_skips(trained):
    root, said = trained
    steps = pd.read_csv(root / "runs" / NAME / "0" / "steps.csv")
    assert list(steps["classes"]) == [2, 3]
    assert "3 classes cannot be split evenly: the steps bring 2, 1." in said
    assert "Skipped: 1 file left behind by programs or hidden." in said
    assert "Exemplars: 1 per class" in said  # a fifth of five training images
    exemplars = pd.read_csv(root / "runs" / NAME / "0" / "exemplars.csv")
    assert exemplars.groupby(["step", "class"]).size().unique().tolist() == [1]


@pytest.mark.parametrize(("count", "kept"), [(8, 1), (70, 11), (150, 20)])
def test_the_default_memory_is_20_per_class_or_a_fifth_of_the_smallest_class(tmp_path, count, kept):
    for name, number in (("ant", 150), ("bee", count)):
        (tmp_path / name).mkdir()
        for image in range(number):
            (tmp_path / name / f"{image:03}.png").write_text("not opened for this")
    assert with_data(recipe("folder-t2@small"), tmp_path).memory.per_class == kept
    total = with_data(recipe("folder-t2-avalanche-replay@small"), tmp_path).memory
    assert (total.mem_size, total.per_class) == (2 * kept, None)
    chosen = override(recipe("folder-t2@small"), {"mem_size": "7"})
    assert with_data(chosen, tmp_path).memory.mem_size == 7
    chosen = override(recipe("folder-t2@small"), {"per_class": "20"})  # as the default has it
    assert with_data(chosen, tmp_path).memory.per_class == 20 and "-m20-" in chosen.name
    assert with_data(recipe("folder-t2-m3@small"), tmp_path).memory.per_class == 3


def test_the_order_of_classes_is_given_by_names_by_a_file_or_by_the_seed(trained, tmp_path):
    root, _ = trained
    (tmp_path / "order.txt").write_text("cat\nant\n\nbee\n")
    expected = {"cat,ant,bee": [2, 0, 1], str(tmp_path / "order.txt"): [2, 0, 1]}
    for given, order in expected.items():
        own = override(recipe("folder-t3@demo"), {"class_order": given})
        assert build_benchmark(own, 0, root / "images").classes_order == order
    by_seed = [
        build_benchmark(
            override(recipe("folder-t3@demo"), {"class_order": "seed"}), seed, root / "images"
        ).classes_order
        for seed in range(4)
    ]
    assert len(set(map(tuple, by_seed))) > 1
    with pytest.raises(ValueError, match="each of the 3 classes once. missing: bee; unknown: emu"):
        hfc(*RUN, "--data", root / "images", "--out", tmp_path, "--class-order", "cat,ant,emu")
    assert not (tmp_path / NAME / "0" / "recipe.json").exists()
    names = override(recipe("npz-t3@demo"), {"class_order": "2,0,1"}).data.class_order
    assert names == ("2", "0", "1")  # texts, as the names of an npz file without names are


def test_every_source_of_a_recipe_of_your_data_is_about_it():
    for name in ("folder@small", "npz-foster@demo", "folder-dytox@demo", "folder@paper"):
        for source in recipe(name).sources.values():
            assert not any(
                word in source for word in ("half of", "digits", "here are two", "tables")
            )


# Files


def test_bad_files_are_named_all_at_once_or_left_out_and_listed(copied):
    (copied / "images" / "ant" / "notes.txt").write_text("x")
    (copied / "images" / "bee" / "broken.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match="notes.txt.*broken.png.*--skip-bad"):
        hfc(*RUN, "--data", copied / "images", "--out", copied / "other")
    assert not (copied / "other").exists()
    hfc(*RUN, "--data", copied / "images", "--out", copied / "other", "--skip-bad")
    note = json.loads((copied / "other" / NAME / "0" / "recipe.json").read_text())
    assert note["data"]["left_out"] == [
        "ant/notes.txt: not an image by its name",
        "bee/broken.png (not an image in a known format): cannot be read",
    ]
    with pytest.raises(ValueError, match="--skip-bad is for folders"):
        hfc("run", "digits-b0-t5-hfc@demo", "--skip-bad")


def test_a_16_bit_image_is_predicted_as_its_8_bit_twin(trained, tmp_path):
    root, _ = trained
    grey = noisy("hen", 3)[..., 0]
    Image.fromarray(grey).save(tmp_path / "8.png")
    Image.fromarray(grey.astype(np.uint16) * 257).save(tmp_path / "16.png")
    said = hfc("predict", root / "runs" / NAME / "0", tmp_path / "8.png", tmp_path / "16.png")
    lines = said.splitlines()
    half = len(lines) // 2
    assert lines[1:half] == lines[half + 1 :] and "%" in lines[1]


# The same data


def test_other_data_under_a_run_is_refused_by_name_and_nothing_changes(copied, tmp_path):
    unfinish(copied)
    image = copied / "images" / "bee" / "0.png"
    held = image.read_bytes()
    paint_over(image)
    before = content(copied / "runs")
    with pytest.raises(ValueError, match=r"not what .* trained on \(changed: bee/0.png\)"):
        again(copied)
    image.unlink()
    (copied / "images" / "ant" / "9.png").write_bytes(held)
    with pytest.raises(ValueError, match=r"\(missing: bee/0.png; new: ant/9.png\)"):
        again(copied)
    assert content(copied / "runs") == before


def test_files_of_the_same_size_and_time_are_read_again_only_if_asked_for(copied, monkeypatch):
    unfinish(copied)
    decoded = []
    read = check.read_image
    monkeypatch.setattr(check, "read_image", lambda file: decoded.append(file.name) or read(file))
    image = copied / "images" / "bee" / "0.png"
    os.utime(image, ns=(0, 0))
    again(copied)
    assert [str(name) for name in decoded] == [str(image)]
    unfinish(copied)
    paint_over(image, keep_time=True)
    again(copied)
    unfinish(copied)
    with pytest.raises(ValueError, match="changed: bee/0.png"):
        again(copied, "--verify-data")


def test_learn_and_pictures_refuse_painted_images_before_anything_is_written(copied, tmp_path):
    run = copied / "runs" / NAME / "0"
    paint_over(copied / "images" / "cat" / "2.png")
    before = content(copied)
    with pytest.raises(ValueError, match=r"trained on \(changed: cat/2.png\)"):
        hfc("learn", run, copied / "new")
    with pytest.raises(ValueError, match=r"trained on \(changed: cat/2.png\)"):
        hfc("report", run, "--out", tmp_path / "report", "--pictures")
    assert content(copied) == before


def test_what_is_learned_later_is_part_of_the_fingerprint(copied):
    run = copied / "runs" / NAME / "0"
    hfc("learn", run, copied / "new", "--out", copied / "longer")
    note = json.loads((copied / "longer" / "recipe.json").read_text())
    assert note["data"]["files"] == 28
    paint_over(copied / "new" / "dog" / "0.png")
    make_folder(copied / "third", ["gnu"])
    with pytest.raises(ValueError, match=r"trained on \(changed: learned 1/dog/0.png\)"):
        hfc("learn", copied / "longer", copied / "third")
