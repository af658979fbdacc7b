"""Every script of examples/ and the notebook run as they stand, in an empty folder."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from image_folders import hfc
from pages import DOCS, EXAMPLES, NOTEBOOK, PAGES, code_blocks, name_of
from PIL import Image

RUN_SCRIPTS = """
import pathlib, sys
for path in sys.argv[1:]:
    print("running", pathlib.Path(path).stem, flush=True)
    exec(compile(pathlib.Path(path).read_text(), path, "exec"), {"__name__": "__main__"})
"""
FOLDER_OF_PHOTOS = ("ant", "bee", "cat", "dog")


def run(scripts, folder):
    return subprocess.run(
        [sys.executable, "-c", RUN_SCRIPTS, *map(str, scripts)],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"},
        cwd=folder,
    )


def photos(folder):
    """The folder that examples/your_images.py reads."""
    random = np.random.default_rng(0)
    for name in FOLDER_OF_PHOTOS:
        (folder / "photos" / name).mkdir(parents=True)
        for number in range(6):
            pixels = random.integers(0, 256, (40, 48, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / "photos" / name / f"{number}.jpg")


def trained_run(folder):
    """The run that examples/trained_model.py and examples/export_model.py load."""
    options = ("--data", folder / "photos", "--out", folder / "runs", "--epochs", "1")
    hfc("run", "folder-t2@demo", *options)


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """What all examples print, run one after the other."""
    folder = tmp_path_factory.mktemp("examples")
    photos(folder)
    trained_run(folder)
    result = run(EXAMPLES, folder)
    assert result.returncode == 0, result.stderr[-3000:]
    return result.stdout


def test_every_example_runs_in_a_folder_with_photos(printed):
    assert re.findall(r"running (\w+)", printed) == [path.stem for path in EXAMPLES]
    last_classes = re.search(r"^\['(\w+)', '(\w+)'\]$", printed, re.MULTILINE)
    assert last_classes and set(last_classes.groups()) < set(FOLDER_OF_PHOTOS)
    assert re.search(r"^predicted (ant|bee|cat|dog) \(\d+%\)$", printed, re.MULTILINE)


def test_the_log_excerpt_of_the_metrics_is_what_the_example_prints(printed):
    ((_, excerpt),) = (
        block
        for block in code_blocks((DOCS / "plugins.md").read_text(), "text")
        if block[0] == "examples/metrics.py"
    )
    log = printed.split("running metrics\n")[1].split("running ")[0]
    start = log.rindex("Epoch 4 ended.")
    metrics = log[log.rindex("-- >> End of eval phase") :]
    actual = [*log[start:].split("-- >>")[0].splitlines(), *metrics.splitlines()]
    told = [line.partition(" = ") for line in excerpt.splitlines()]
    assert [name for name, _, _ in told] == [line.partition(" = ")[0] for line in actual]
    for (name, _, value), line in zip(told, actual, strict=True):
        if value:
            assert float(value) == pytest.approx(float(line.partition(" = ")[2]), abs=0.1), name


def cells():
    """The code of the notebook but for the cell that installs the package."""
    for cell in json.loads(NOTEBOOK.read_text())["cells"]:
        if cell["cell_type"] == "code" and "install" not in cell["metadata"].get("tags", ()):
            yield "".join(cell["source"])


def test_the_notebook_runs_and_shows_that_hfc_forgets_less(tmp_path):
    script = tmp_path / "notebook.py"
    report = "print('last', {name: accuracy(counts[-1]) for name, counts in results.items()})"
    script.write_text("\n".join([*cells(), report]))
    result = run([script], tmp_path)
    assert result.returncode == 0, result.stderr[-3000:]
    last = dict(re.findall(r"'([\w-]+)': ([\d.]+)", result.stdout.split("last ")[-1]))
    assert float(last["hfc"]) > float(last["herding-replay"]) + 0.1


def test_the_notebook_is_stored_without_outputs():
    notebook = json.loads(NOTEBOOK.read_text())
    assert [cell for cell in notebook["cells"] if cell.get("outputs")] == []


@pytest.mark.parametrize("page", [page for page in PAGES if DOCS in page.parents], ids=name_of)
def test_python_in_the_pages_of_docs_is_included_from_examples(page):
    """So it is code that ran. That the file exists is checked when the pages are built."""
    for _, code in code_blocks(page.read_text(), "python"):
        assert re.fullmatch(r'--8<-- "examples/\w+\.py"\n', code), code


def test_every_example_is_shown_in_a_page():
    shown = "".join(page.read_text() for page in PAGES)
    assert [path.name for path in EXAMPLES if f'"examples/{path.name}"' not in shown] == []


SAVE_LOGITS = """
import pathlib, sys, torch
example, path = sys.argv[1:]
names = {"__name__": "__main__"}
exec(compile(pathlib.Path(example).read_text(), example, "exec"), names)
if names["DistributedHelper"].rank == 0:
    learned = names["benchmark"].test_stream[:2]
    images = torch.stack([image for step in learned for image, *_ in step.dataset])
    with torch.no_grad():
        torch.save(names["strategy"].model.eval()(images), path)
"""


def test_two_ranks_of_the_script_train_what_one_process_trains(tmp_path):
    """Its function on the test images. The weights differ more: AdamW makes whole steps of the
    rounding of gradients that are 0, such as those of the key biases.
    """
    (tmp_path / "script.py").write_text(SAVE_LOGITS)
    (example,) = [path for path in EXAMPLES if path.stem == "ranks"]
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    found = []
    for name, words in (("one", ()), ("two", launcher)):
        command = [sys.executable, *words, "script.py", str(example), f"{name}.pt"]
        result = subprocess.run(
            command,
            capture_output=True,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            cwd=tmp_path,
        )
        assert result.returncode == 0, result.stderr[-3000:]
        assert f"4 classes learned on {len(found) + 1} rank(s)" in result.stdout
        found.append(torch.load(tmp_path / f"{name}.pt"))
    one, two = found
    assert len(one) > 100 and one.max() > 1
    torch.testing.assert_close(two, one, rtol=0, atol=1e-4)  # measured: 2e-6
