"""Every Python block of the README runs as it stands, in an empty folder."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
from PIL import Image

README = Path(__file__).parents[1] / "README.md"
RUN_BLOCKS = """
import os, sys, pathlib
for number, path in enumerate(sys.argv[1:], 1):
    print("block", number, flush=True)
    os.chdir(pathlib.Path(path).parent)
    exec(compile(pathlib.Path(path).read_text(), path, "exec"), {"__name__": "__main__"})
"""


def blocks():
    return re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)


def photos(folder):
    """What the section on one's own images asks for: class folders with pictures."""
    random = np.random.default_rng(0)
    for name in ("ant", "bee", "cat", "dog"):
        (folder / "photos" / name).mkdir(parents=True)
        for number in range(6):
            Image.fromarray(random.integers(0, 256, (40, 48, 3), dtype=np.uint8)).save(
                folder / "photos" / name / f"{number}.jpg"
            )


def test_every_python_block_runs_in_an_empty_folder(tmp_path):
    scripts = []
    for number, block in enumerate(blocks(), 1):
        folder = tmp_path / str(number)
        folder.mkdir()
        if '"photos"' in block:
            photos(folder)
        scripts.append(folder / "script.py")
        scripts[-1].write_text(block)
    assert len(scripts) == 7
    command = [sys.executable, "-c", RUN_BLOCKS, *map(str, scripts)]
    result = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        cwd=tmp_path,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    assert "block 5" in result.stdout


def test_the_first_block_is_ten_lines_of_avalanche():
    assert len([line for line in blocks()[0].splitlines() if line.strip()]) == 10


def test_every_file_the_readme_links_to_exists():
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", README.read_text())
    assert links and [link for link in links if not (README.parent / link).exists()] == []
