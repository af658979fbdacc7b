"""A folder with every kind of file that has made a command fail goes through all commands."""

import csv
import json

import pandas as pd
import pytest
from click.testing import CliRunner
from image_folders import hfc
from nasty_files import CLASS_NAMES, bad_files, junk, odd_images, pixels
from PIL import Image

from avalanche_hfc.lab.cli import commands

SHORT = ("--image-size", "16", "--epochs", "1", "--batch-size", "16")
NAME = "folder-b0-t3-finetune@demo"


def nasty(root, names):
    """(number of images that can be trained on, names of bad files, number of skipped files)."""
    for name in names:
        (root / name).mkdir(parents=True)
        for number in range(7):
            Image.fromarray(pixels(number)).save(root / name / f"{number}.png")
    first = root / names[0]
    return 7 * len(names) + odd_images(first), bad_files(first), junk(root, first)


def call(*arguments):
    return CliRunner().invoke(commands, [str(word) for word in arguments])


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("nasty folder ü")


def test_check_run_report_predict_and_learn(place):
    images, arriving = place / "images", place / "new"
    num_images, bad, num_junk = nasty(images, CLASS_NAMES)
    command = ("run", "folder-t3-finetune@demo", *SHORT, "--data", images, "--out", place / "runs")

    told = call("data", "check", images, "--json")
    found = json.loads(told.stdout)
    named = {
        where.split("/", 1)[1].split(" (")[0]
        for one in found["findings"]
        if one["stops"]
        for where in one["where"]
    }
    assert told.exit_code == 1 and not found["usable"] and named == bad
    refused = call(*command)
    assert all(name in str(refused.exception) for name in bad)
    assert len(str(refused.exception).splitlines()) == 1 and not (place / "runs").exists()

    told = call("data", "check", images, "--skip-bad")
    assert (
        told.exit_code == 0 and f"{num_images} images in {len(CLASS_NAMES)} classes" in told.stdout
    )
    ran = call(*command, "--skip-bad")
    assert ran.exit_code == 0, ran.output
    assert f"Left out: {len(bad)} bad files;" in ran.stderr
    assert f"Skipped: {num_junk} files left behind" in ran.stderr
    run = place / "runs" / NAME / "0"
    note = json.loads((run / "recipe.json").read_text())
    assert len(note["data"]["left_out"]) == len(bad) and note["data"]["files"] == num_images
    rows = pd.read_csv(run / "classes.csv", keep_default_na=False)
    assert set(rows["name"]) == set(CLASS_NAMES)
    assert rows.groupby("step").size().tolist() == [2, 4, 6]

    hfc("report", place / "runs", "--out", place / "report")
    page = (place / "report" / "report.html").read_text()
    assert "Ärger 日本 مرحبا" in page and "&lt;b&gt;![x](y)|" in page and "<b>![" not in page

    answer = call("predict", run, images / CLASS_NAMES[0], "--csv", "--top", "1")
    answered = list(csv.DictReader(answer.stdout.splitlines()))
    assert len(answered) == num_images - 7 * (len(CLASS_NAMES) - 1)
    assert {row["class"] for row in answered} <= set(CLASS_NAMES)
    unread = [line for line in answer.stderr.splitlines() if "cannot be read" in line]
    assert answer.exit_code == 1 and len(unread) == len(bad - {"notes.txt"})
    assert all(any(name in line for line in unread) for name in bad - {"notes.txt"})

    more, bad_too, _ = nasty(arriving, ("null", "nan"))
    taught = call("learn", run, arriving, "--out", place / "longer")  # leaves out, as the run did
    assert taught.exit_code == 0, taught.output
    longer = json.loads((place / "longer" / "recipe.json").read_text())
    assert longer["data"]["files"] == num_images + more
    assert len(longer["data"]["left_out"]) == len(bad) + len(bad_too)
    assert set(pd.read_csv(place / "longer" / "classes.csv", keep_default_na=False)["name"]) == {
        *CLASS_NAMES,
        "null",
        "nan",
    }
