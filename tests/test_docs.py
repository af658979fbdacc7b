"""The built pages: no warnings, nothing loaded from elsewhere, a reference that is true."""

import importlib
import re
import runpy
import subprocess
import sys
import zlib
from html.parser import HTMLParser

import pytest
import yaml
from pages import DOCS, ROOT, table
from test_architecture import ORDER

import avalanche_hfc

REFERENCE = "strategies losses plugins models memory benchmarks metrics compat lab report".split()
LOADING = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    result = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return folder


class Resources(HTMLParser):
    """Addresses that a browser loads without being asked."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        address = values.get(LOADING.get(tag, ""))
        if address and values.get("rel") not in ("canonical", "prev", "next"):
            self.found.append(address)


def resources(html):
    parser = Resources()
    parser.feed(html)
    return parser.found


def from_elsewhere(address):
    return re.match(r"(?:[a-z]+:)?//", address) is not None


def test_the_pages_load_nothing_from_elsewhere(site):
    pages = list(site.rglob("*.html"))
    loaded = {address for page in pages for address in resources(page.read_text())}
    assert len(pages) > 15 and len(loaded) > 3
    assert sorted(filter(from_elsewhere, loaded)) == []
    styles = "".join(path.read_text() for path in site.rglob("*.css"))
    assert re.findall(r"url\(['\"]?(?:https?:)?//[^)]*|@import[^;]*", styles) == []


def test_every_page_is_in_the_navigation():
    def files(entries):
        for entry in entries:
            value = next(iter(entry.values())) if isinstance(entry, dict) else entry
            yield from files(value) if isinstance(value, list) else [value]

    navigation = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    assert sorted(files(navigation)) == sorted(
        path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")
    )


@pytest.fixture(scope="module")
def documented(site):
    """Dotted names of the reference, as its inventory tells other projects."""
    lines = zlib.decompress((site / "objects.inv").read_bytes().split(b"\n", 4)[4]).decode()
    rows = [line.split() for line in lines.splitlines()]
    return {name for name, _, priority, *_ in rows if priority == "1"}


def load(name):
    """The object of a dotted name; an error where there is none."""
    project, package, *rest = name.split(".")
    found = importlib.import_module(f"{project}.{package}")
    if package == "lab" and not hasattr(found, rest[0]):  # its door has recipes alone
        found = importlib.import_module(f"{project}.{package}.{rest.pop(0)}")
    for part in rest:
        declared = getattr(found, "__annotations__", {})  # of a class: values that instances have
        found = getattr(found, part) if hasattr(found, part) else declared[part]
    return found


def test_every_documented_name_can_be_imported_from_where_the_reference_says_it_lives(documented):
    assert len(documented) > 150
    missing = []
    for name in sorted(documented):
        try:
            load(name)
        except (AttributeError, KeyError) as error:
            missing.append((name, str(error)))
    assert missing == []


@pytest.mark.parametrize("package", REFERENCE)
def test_every_public_name_is_in_the_reference(package, documented):
    module = importlib.import_module(f"avalanche_hfc.{package}")
    names = {f"avalanche_hfc.{package}.{name}" for name in module.__all__}
    assert sorted(names - documented) == []


def test_the_table_of_short_names_is_that_of_the_package():
    text = (DOCS / "reference" / "index.md").read_text()
    rows = re.findall(r"^\| (`.*?) \| \[`avalanche_hfc\.([\w.]+)`\]", text, re.MULTILINE)
    shown = {name: package for names, package in rows for name in re.findall(r"`(\w+)`", names)}
    assert shown == avalanche_hfc._HOME


def test_the_picture_of_the_layers_has_them_in_their_order():
    picture = (DOCS / "images" / "layers.svg").read_text()
    assert re.findall(r'class="layer">(\w+)<', picture) == list(ORDER)


def test_the_picture_of_the_readme_is_that_of_the_committed_rows(tmp_path):
    script = runpy.run_path(str(ROOT / "experiments" / "digits_picture.py"))
    script["draw"](ROOT / "experiments/results/demo/steps.csv", tmp_path / "digits.png")
    drawn = (tmp_path / "digits.png").read_bytes()
    assert drawn == (DOCS / "images" / "digits.png").read_bytes()


def test_every_method_of_ours_has_a_line_that_says_what_it_minimizes():
    lines = table(DOCS / "methods.md", "| `STRATEGIES` | paper |")
    ours = {name for name in avalanche_hfc.STRATEGIES if not name.startswith("avalanche-")}
    assert {cells[0].strip("`") for cells in lines} == ours | {"avalanche-…"}
    assert all(cells[2] and cells[3] for cells in lines[:-1])
