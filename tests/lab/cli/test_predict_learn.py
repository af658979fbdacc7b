"""A finished run in use: `hfc predict` and `hfc learn`."""

import io
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from click.testing import CliRunner
from image_folders import COLOURS, TINY, content, hfc, make_folder
from PIL import Image

from avalanche_hfc.lab import Recipe, override, recipe
from avalanche_hfc.lab.cli import commands
from avalanche_hfc.lab.data import build_benchmark
from avalanche_hfc.lab.learn import accuracies
from avalanche_hfc.lab.run import run
from avalanche_hfc.lab.run_folder import TIMES
from avalanche_hfc.lab.trained_run import FinishedRun, load_run, predict

OLD, NEW = list(COLOURS)[:4], list(COLOURS)[4:6]
FILES = ["steps", "classes", "confusion", "exemplars", "train"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """images/, new/ and a run of iCaRL, which has both classifiers, in runs/."""
    root = tmp_path_factory.mktemp("own")
    make_folder(root / "images", OLD)
    make_folder(root / "new", NEW)
    hfc("run", "folder-t2-icarl@demo", "--data", root / "images", "--out", root / "runs", *TINY)
    return root


@pytest.fixture(scope="module")
def finished(place):
    return place / "runs" / "folder-b0-t2-icarl@demo" / "0"


@pytest.fixture(scope="module")
def longer(place, finished):
    """The folder of the run that has learned new/, and what was printed."""
    said = hfc("learn", finished, place / "new", "--out", place / "longer" / "0")
    return place / "longer" / "0", said


def call(*arguments):
    """As `hfc`, but with the exit code and what is said on stderr."""
    return CliRunner().invoke(commands, [str(word) for word in arguments])


@pytest.fixture
def copied(finished, tmp_path):
    return Path(shutil.copytree(finished, tmp_path / "run"))


def rows(folder, name):
    table = pd.read_csv(folder / f"{name}.csv")
    return table.drop(columns=[column for column in table if column in TIMES])


def kept_for_the_test(root, names):
    """The images that `split_folder` keeps for the test."""
    return [root / name / f"{number}.png" for name in names for number in (1, 6)]


# predict


def test_the_first_names_are_those_that_the_run_counted_for_its_test_images(place, finished):
    found = predict(finished, kept_for_the_test(place / "images", OLD))
    classes = rows(finished, "classes").query("step == 1").set_index("name")
    confusion = rows(finished, "confusion").query("step == 1")
    counted = {
        (OLD[row["class"]], OLD[row["predicted"]]): row["count"] for _, row in confusion.iterrows()
    }
    by_head = (
        pd.Series([(one.path.parent.name, one.head[0][0]) for one in found])
        .value_counts()
        .to_dict()
    )
    by_means = pd.Series(
        [one.path.parent.name for one in found if one.nearest[0][0] == one.path.parent.name]
    ).value_counts()
    assert by_head == counted
    assert (
        by_means.reindex(OLD, fill_value=0).to_dict()
        == classes["correct_nme"].reindex(OLD).to_dict()
    )


def test_the_number_of_a_nearest_mean_is_the_cosine_of_feature_and_mean(place, finished):
    path = place / "images" / "bee" / "0.png"
    (found,) = predict(finished, [path], top=4)
    strategy = FinishedRun(finished).strategy()
    strategy.model.eval()
    image = torch.from_numpy(np.array(Image.open(path)) / 255).permute(2, 0, 1).float() * 2 - 1
    feature = strategy.model.embed(image[None])[0].detach().double()
    for name, cosine in found.nearest:
        mean = strategy.class_means()[OLD.index(name)].double()
        assert cosine == pytest.approx(
            float(feature @ mean / feature.norm() / mean.norm()), abs=1e-5
        )


def test_the_command_prints_names_and_numbers_and_changes_nothing(place, finished):
    before = content(finished)
    said = hfc(
        "predict",
        finished,
        place / "images" / "bee" / "1.png",
        place / "images" / "cat" / "1.png",
        "--top",
        "2",
    )
    assert (
        len(re.findall(r"^ +\d+\.\d%  \w+$", said, re.M)) == 4
        and len(re.findall(r"^ +-?\d\.\d{3}  \w+$", said, re.M)) == 4
    )
    assert said.splitlines()[0] == str(place / "images" / "bee" / "1.png")
    assert said.splitlines()[1].strip() == "nearest means"  # by which iCaRL is measured
    assert said.splitlines()[4].strip() == "head"
    assert content(finished) == before


def test_the_first_classifier_is_the_one_that_the_accuracy_of_the_run_is_measured_by(
    place, finished
):
    found = predict(finished, kept_for_the_test(place / "images", OLD))
    answers = [one.classifiers[0][1][0][0] for one in found]
    right = sum(answer == one.path.parent.name for answer, one in zip(answers, found, strict=True))
    assert right / len(found) == rows(finished, "steps")["accuracy"].iloc[-1]
    by_head = sum(one.head[0][0] == one.path.parent.name for one in found)
    assert by_head != right  # or the order would not matter here
    trained = load_run(finished)
    for one, answer in zip(found, answers, strict=True):
        with Image.open(one.path) as image:
            logits = trained.model(trained.transform(image.convert("RGB"))[None])[0]
        assert trained.class_names[int(logits.argmax())] == answer


def test_an_image_that_cannot_be_read_is_named_and_the_others_are_answered(
    place, finished, tmp_path
):
    (tmp_path / "text.png").write_text("no image")
    good = place / "images" / "ant" / "0.png"
    files = (tmp_path / "text.png", good, tmp_path / "gone.png", "/dev/null")
    result = call("predict", finished, *files)
    assert result.exit_code == 1
    assert result.stdout == hfc("predict", finished, good)
    assert result.stderr.splitlines()[-3:] == [
        f"{tmp_path / 'text.png'} cannot be read: not an image in a known format.",
        f"{tmp_path / 'gone.png'} cannot be read: no such file.",
        "/dev/null cannot be read: not a regular file.",  # nor is a pipe, which would be waited for
    ]


def test_a_folder_stands_for_its_images_and_the_folder_of_a_recipe_for_its_one_run(
    place, finished, tmp_path
):
    by_name = sorted((place / "images").rglob("*.png"))
    found = predict(finished.parent, [place / "images"])
    assert sorted(one.path for one in found) == by_name and len(by_name) == 28
    assert found == predict(finished, [one.path for one in found])
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="empty holds no images"):
        predict(finished, [tmp_path / "empty"])
    for seed in ("0", "1"):
        shutil.copytree(finished, tmp_path / "two" / seed)
    with pytest.raises(ValueError, match="two holds 2 runs. Choose one: .*two/0, .*two/1"):
        predict(tmp_path / "two", by_name[:1])


def test_json_and_csv_hold_what_is_printed(place, finished, tmp_path):
    good, bad = place / "images" / "bee" / "1.png", tmp_path / "gone.png"
    (found,) = predict(finished, [good], top=2)
    told = json.loads(call("predict", finished, good, bad, "--top", "2", "--json").stdout)
    assert told == [
        {
            "path": str(good),
            "class": found.nearest[0][0],
            "classifier": "nearest mean",
            "nearest": [{"class": name, "cosine": value} for name, value in found.nearest],
            "classes": [{"class": name, "probability": value} for name, value in found.head],
        },
        {"path": str(bad), "error": "no such file"},
    ]
    table = pd.read_csv(io.StringIO(hfc("predict", finished, good, "--top", "2", "--csv")))
    assert list(told[0]) == ["path", "class", "classifier", "nearest", "classes"]
    assert table["class"].tolist() == [name for name, _ in [*found.nearest, *found.head]]
    assert table["value"].tolist() == [value for _, value in [*found.nearest, *found.head]]
    assert table["classifier"].tolist() == ["nearest mean"] * 2 + ["head"] * 2
    assert table["rank"].tolist() == [1, 2, 1, 2] and set(table["path"]) == {str(good)}


def test_a_folder_that_cannot_be_used_is_told(copied, place, tmp_path):
    image = place / "images" / "ant" / "0.png"
    with pytest.raises(
        FileNotFoundError, match="images is not a run folder: it has no recipe.json"
    ):
        predict(place / "images", [image])
    state = copied / "checkpoint" / "last" / "state.pt"
    state.write_bytes(state.read_bytes()[:-1])
    with pytest.raises(ValueError, match="cannot be used: its state.pt has"):
        predict(copied, [image])
    shutil.rmtree(copied / "checkpoint")
    with pytest.raises(ValueError, match="holds no weights: icarl keeps no checkpoints"):
        predict(copied, [image])
    note = json.loads((copied / "recipe.json").read_text())
    del note["finished"]
    (copied / "recipe.json").write_text(json.dumps(note))
    with pytest.raises(ValueError, match=f"is not finished. To resume it: hfc resume {copied}$"):
        predict(copied, [image])


# learn


def test_the_longer_run_has_the_rows_and_weights_of_one_that_knew_of_the_new_classes_from_the_start(
    longer, tmp_path
):
    folder, _ = longer
    note = json.loads((folder / "recipe.json").read_text())
    own = Recipe.from_dict(note["recipe"])
    assert own.paths["learn"] == (str(folder.parents[1] / "new"),)
    run(own, note["seed"], tmp_path / "unbroken", data_root=own.paths["data"])
    for name in FILES:
        pd.testing.assert_frame_equal(rows(folder, name), rows(tmp_path / "unbroken", name))
    assert list(rows(folder, "steps")["classes"]) == [2, 4, 6]


def test_old_and_new_classes_are_judged_apart_and_the_run_is_left_as_it_was(
    place, finished, longer
):
    folder, said = longer
    for name in FILES:
        before = rows(finished, name)
        pd.testing.assert_frame_equal(rows(folder, name).query("step < 2")[before.columns], before)
    last = rows(folder, "classes").query("step == 2")
    found = accuracies(folder)
    for word, names in (("old", OLD), ("new", NEW)):
        own = last[last["name"].isin(names)]
        assert found[word] == (
            own["correct_nme"].sum() / own["total"].sum(),
            len(names),
            2 * len(names),
        )
        assert (
            f"{word} classes: accuracy {found[word].accuracy:.4f} on {len(names)} classes" in said
        )
    before = rows(finished, "classes").query("step == 1")
    accuracy = before["correct_nme"].sum() / before["total"].sum()
    assert found["before"] == (accuracy, len(OLD), 2 * len(OLD))
    assert f"8 test images; {accuracy:.4f} before\n" in said
    assert (
        "finished" in json.loads((finished / "recipe.json").read_text())
        and not (finished / "lock").exists()
    )


def test_what_is_learned_is_predicted_and_can_be_learned_on(place, longer, tmp_path):
    folder, _ = longer
    (found,) = predict(folder, [place / "new" / "emu" / "1.png"], top=6)
    assert sorted(name for name, _ in found.head) == sorted([*OLD, *NEW])
    make_folder(tmp_path / "third", ["gnu"])
    hfc("learn", folder, tmp_path / "third", "--epochs", "1", "--out", tmp_path / "0")
    assert list(rows(tmp_path / "0", "steps")["classes"]) == [2, 4, 6, 7]
    assert list(rows(tmp_path / "0", "train").query("step == 3")["epoch"]) == [0]
    assert rows(tmp_path / "0", "classes").query("step == 3").set_index("class")[
        "name"
    ].to_dict() == dict(enumerate([*OLD, *NEW, "gnu"]))


def test_a_finished_lesson_is_not_given_again_and_another_is_refused_in_its_folder(
    place, finished, longer
):
    folder, said = longer
    before = content(folder)
    assert hfc("learn", finished, place / "new", "--out", folder) == said
    with pytest.raises(ValueError, match="another recipe .*train.epochs 3, now 5"):
        hfc("learn", finished, place / "new", "--out", folder, "--epochs", "5")
    assert content(folder) == before


def test_what_cannot_be_learned_is_refused_before_anything_is_written(place, finished, tmp_path):
    before = content(place / "runs")
    make_folder(tmp_path / "again", ["cat", "hen"])
    make_folder(tmp_path / "others", ["ant", "bee", "cat", "hen"])
    with pytest.raises(ValueError, match="again has classes that are known already: cat"):
        hfc("learn", finished, tmp_path / "again")
    with pytest.raises(ValueError, match="others is not the data of .*it has no class 'dog'"):
        hfc("learn", finished, place / "new", "--data", tmp_path / "others")
    with pytest.raises(FileNotFoundError, match="No folder .*nowhere"):
        hfc("learn", finished, tmp_path / "nowhere")
    with pytest.raises(ValueError, match="is the run itself"):
        hfc("learn", finished, place / "new", "--out", finished)
    assert content(place / "runs") == before


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("digits-b0-t5-hfc@demo", (1, 8, 8)),
        ("npz-t2@demo", (3, 32, 32)),
        ("npz-t2@paper", (3, 40, 40)),
    ],
)
def test_new_classes_join_images_of_every_kind_in_their_form(place, tmp_path, name, shape):
    """Tensors, grey or coloured, with and without augmentation."""
    arrays = {f"x_{part}": np.full((8, 40, 40, 3), 9, dtype=np.uint8) for part in ("train", "test")}
    np.savez(
        tmp_path / "own.npz",
        **arrays,
        **{f"y_{part}": np.arange(8) % 4 for part in ("train", "test")},
    )
    own = override(recipe(name), {"image_size": str(shape[-1])})
    root = None if name.startswith("digits") else tmp_path / "own.npz"
    benchmark = build_benchmark(replace(own, paths={"learn": (str(place / "new"),)}), 0, root)
    old = len(benchmark.class_names) - 2
    assert benchmark.class_names[old:] == tuple(NEW)
    last = list(benchmark.train_stream)[-1]
    assert set(last.classes_in_this_experience) == {old, old + 1} and len(last.dataset) == 10
    for experience in benchmark.train_stream:
        image, label, *_ = experience.dataset[0]
        assert (
            image.shape == shape
            and image.dtype == torch.float32
            and label in experience.classes_in_this_experience
        )
    short = build_benchmark(own, 0, root)
    for before, after in zip(short.train_stream, benchmark.train_stream, strict=False):
        assert list(before.dataset.targets) == list(after.dataset.targets)


def test_a_report_shows_pictures_of_your_data_and_of_folders_learned_later(place, copied, tmp_path):
    hfc("learn", copied, place / "new", "--epochs", "1")
    for folder, classes in ((copied, 4), (copied.with_name("run+new"), 6)):
        hfc("report", folder, "--out", tmp_path / folder.name, "--pictures")
        exemplars = rows(folder, "exemplars")
        last = exemplars[exemplars["step"] == exemplars["step"].max()]
        assert last["class"].nunique() == classes
        assert (tmp_path / folder.name / "report.html").read_text().count("data:image/png") == len(
            last
        )


# resume and report


def stopped(folder, target, step):
    """A copy of a run as it was when it began this step."""
    shutil.copytree(folder, target)
    note = json.loads((target / "recipe.json").read_text())
    del note["finished"]
    (target / "recipe.json").write_text(json.dumps(note))
    last = target / "checkpoint" / "last"
    held = json.loads((last / "note.json").read_text())
    assert held["step"] == step + 1
    shutil.rmtree(last)
    (target / "checkpoint" / "previous").rename(last)
    return target


def test_resume_trains_the_rest_of_runs_and_lessons_from_the_folder_alone(
    place, finished, longer, tmp_path
):
    for whole, step in ((finished, 1), (longer[0], 2)):
        folder = stopped(whole, tmp_path / str(step), step)
        said = call("resume", folder)
        assert said.exit_code == 0 and f"Rows: {folder}" in said.stdout
        assert f"step {step + 1}/{step + 1}: accuracy" in said.stderr
        for name in FILES:
            pd.testing.assert_frame_equal(rows(folder, name), rows(whole, name))
        again = call("resume", folder)
        assert again.stdout == said.stdout and "finished; nothing was done" in again.stderr


def test_resume_takes_the_place_of_data_that_has_moved(place, finished, tmp_path):
    folder = stopped(finished, tmp_path / "run", 1)
    note = json.loads((folder / "recipe.json").read_text())
    del note["sha256"]
    note["recipe"]["own"]["data"] = str(tmp_path / "gone")
    (folder / "recipe.json").write_text(json.dumps(note))
    with pytest.raises(FileNotFoundError, match="No folder .*gone"):
        hfc("resume", folder)
    hfc("resume", folder, "--data", place / "images")
    pd.testing.assert_frame_equal(rows(folder, "steps"), rows(finished, "steps"))
    note = json.loads((folder / "recipe.json").read_text())
    assert note["recipe"]["own"]["data"] == str(place / "images")
