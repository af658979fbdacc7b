"""The report as a real browser shows it: wide and narrow, light and dark.

Plain chromium. A script in a copy of the page tells what it finds to a page around it, whose DOM is
printed: a frame can be narrower than a window, which chromium does not make smaller than 500
pixels.
"""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from synthetic_runs import HUNDRED, METHODS, write_runs
from waiting import PATIENCE

from avalanche_hfc.report.page import as_html
from avalanche_hfc.report.sections import make_report

BROWSER = next(
    filter(
        None,
        map(
            shutil.which, ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
        ),
    ),
    None,
)
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(BROWSER is None, reason="no browser: install chromium to look at the page"),
]
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-background-networking --disable-component-update --disable-extensions --no-first-run "
    "--hide-scrollbars --enable-logging=stderr --virtual-time-budget=3000 --dump-dom"
).split()
SCRIPT = (Path(__file__).parent / "findings.js").read_text()
AROUND = """<!doctype html><meta name="color-scheme" content="light dark"><link rel="icon" href="data:,"><body style="margin:0">
<script>addEventListener("message", (event) => {{
  const note = document.createElement("pre");
  note.id = "findings";
  note.textContent = event.data;
  document.body.append(note);
}});</script>
<iframe src="{name}" style="width:{width}px;height:900px;border:0"></iframe>"""
VIEWS = [(1280, "light"), (1280, "dark"), (400, "light"), (400, "dark")]


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Six recipes × two seeds of a hundred classes in ten steps, with pictures of exemplars."""
    folder = tmp_path_factory.mktemp("page")
    runs = write_runs(folder / "runs", METHODS, seeds=(0, 1), names=HUNDRED, num_steps=10)
    report = make_report(
        runs,
        pictures=lambda run: lambda position: np.full((8, 8, 3), position % 251, dtype=np.uint8),
    )
    return as_html(report)


def look(page, folder, width, scheme, script=SCRIPT):
    """(what the script has found, what the console said) at this width of the window, light or
    dark.
    """
    copy = folder / f"{width}-{scheme}.html"
    copy.write_text(page.replace("<head>", f"<head><script>{script}</script>", 1))
    around = folder / f"around-{copy.name}"
    around.write_text(AROUND.format(name=copy.name, width=width))
    view = [
        "--window-size=1400,1000",
        f"--blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}",
    ]
    command = [BROWSER, *FLAGS, *view, f"--user-data-dir={folder / 'profile'}", around.as_uri()]
    result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    found = re.search(r'<pre id="findings">(.*?)</pre>', result.stdout, flags=re.DOTALL)
    assert found, f"The browser did not show the page: {result.stderr[-2000:]}"
    return json.loads(html.unescape(found.group(1))), [
        line for line in result.stderr.splitlines() if "CONSOLE" in line
    ]


@pytest.fixture(scope="module", params=VIEWS, ids=lambda view: f"{view[0]}-{view[1]}")
def view(request, page, tmp_path_factory):
    return (*request.param, *look(page, tmp_path_factory.mktemp("view"), *request.param))


def test_the_page_opens_without_errors_in_the_console(view):
    _, _, found, console = view
    assert found["errors"] == [] and console == []


def test_nothing_is_wider_than_the_window(view):
    width, _, found, _ = view
    assert found["width"] == width and found["pageWidth"] <= width
    assert found["outside"] == [] and found["boxesTooWide"] == 0


def test_no_table_is_wider_than_its_page(view):
    _, _, found, _ = view
    assert found["boxesThatScroll"] == [] and found["numTables"] >= 11
    assert found["smallestTableLetter"] >= 12


def test_every_figure_and_picture_is_there(view):
    width, _, found, _ = view
    assert len(found["plots"]) == 3 and min(found["plots"]) > 0.8 * min(width, 1040)
    assert len(found["images"]) == 96 and min(found["images"]) > 0 and found["namelessImages"] == 0


def test_letters_and_lines_of_the_figures_can_be_read(view):
    _, _, found, _ = view
    assert found["smallestLetter"] >= 11
    assert found["leastContrast"] >= 4.5 and found["faintestLine"] >= 3


def test_the_map_of_a_hundred_classes_can_be_read(view):
    _, _, found, _ = view
    assert (
        found["smallestHeatLetter"] >= 9 and found["narrowestCell"] >= 15 and found["cutCells"] == 0
    )
    assert found["faintestCell"] >= 3


def test_the_ground_follows_light_and_dark(view):
    _, scheme, found, _ = view
    assert found["ground"] < 0.05 if scheme == "dark" else found["ground"] > 0.9


def test_an_error_would_be_seen(page, tmp_path):
    broken = page.replace(
        "</main>", '<img src="missing.png" alt="x"><div style="width:2000px">x</div></main>'
    ).replace("</body>", "<script>undefinedName()</script></body>")
    found, console = look(broken, tmp_path, 400, "light")
    assert any("undefinedName" in error for error in found["errors"]) and any(
        "undefinedName" in line for line in console
    )
    assert found["pageWidth"] > 1900 and found["outside"] != [] and 0 in found["images"]
