"""Run folders that version 0.1 wrote: two runs on four classes of tiny images, in one archive."""

import json
import shutil
from pathlib import Path

import pytest
from image_folders import content, hfc

ARCHIVE = Path(__file__).with_name("version_0_1.zip")
HFC, PODNET = "folder-b0-t2-hfc@demo", "folder-b0-t2-podnet@demo"
GIVEN = "--epochs 1 --mem-size 8 --embed-dim 8 --num-heads 2 --image-size 8 --patch-size 4".split()


@pytest.fixture
def folder(tmp_path):
    """The archive, unpacked; its recipes name the images where they now are."""
    shutil.unpack_archive(ARCHIVE, tmp_path)
    for path in tmp_path.glob("*/0/recipe.json"):
        path.write_text(path.read_text().replace("DATA", str(tmp_path / "photos")))
    return tmp_path


# What `hfc predict RUN photos/ant/0.png` of version 0.1 printed.
PREDICTED = {
    HFC: ["28.6%  cat", "28.4%  dog", "22.7%  bee", "20.3%  ant"],
    PODNET: [
        *("37.4%  ant", "31.2%  bee", "16.8%  cat", "14.6%  dog", "nearest means"),
        *("1.000  ant", "0.993  dog", "0.881  bee", "0.677  cat"),
    ],
}


@pytest.mark.parametrize("name", [HFC, PODNET])
def test_predict_says_what_version_0_1_said(folder, name):
    said = hfc("predict", folder / name / "0", folder / "photos" / "ant" / "0.png")
    assert [line.strip() for line in said.splitlines()[1:]] == PREDICTED[name]


@pytest.mark.parametrize("name", [HFC, PODNET])
def test_learn_adds_a_step_and_leaves_the_run_as_it_was(folder, name):
    before = content(folder / name / "0")
    hfc("learn", folder / name / "0", folder / "more", "--out", folder / "longer")
    assert content(folder / name / "0") == before
    steps = (folder / "longer" / "steps.csv").read_text().splitlines()
    assert steps[:3] == (folder / name / "0" / "steps.csv").read_text().splitlines()
    assert steps[3].startswith("2,5,")  # step, classes


def test_the_report_and_the_difference_have_their_numbers(folder):
    hfc("report", folder / HFC, folder / PODNET, "--out", folder / "report")
    page = (folder / "report" / "report.md").read_text()
    assert "37.5" in page and "50.0" in page  # the averages that version 0.1 printed
    assert "step 0" in hfc("diff", folder / HFC / "0", folder / PODNET / "0")


@pytest.mark.parametrize("finished", [True, False])
def test_training_is_refused_with_the_reason(folder, finished):
    path = folder / HFC / "0" / "recipe.json"
    if not finished:
        held = json.loads(path.read_text())
        del held["finished"]
        path.write_text(json.dumps(held))
    before = content(folder)
    with pytest.raises(
        ValueError, match=r"made by version 0\.1\.0 of avalanche_hfc, which trained"
    ):
        hfc("run", "folder-t2-hfc@demo", "--data", folder / "photos", "--out", folder, *GIVEN)
    assert content(folder) == before
