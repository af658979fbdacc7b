"""setup.cfg, constraints.txt, environment.yml, the running environment and the package's own names
agree.
"""

import configparser
import os
import re
import sys
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

import avalanche_hfc

ROOT = Path(__file__).parents[1]
SETUP = configparser.ConfigParser()
SETUP.read(ROOT / "setup.cfg")
REQUIRED = [
    Requirement(line) for line in SETUP["options"]["install_requires"].split("\n") if line.strip()
]


def extra(name):
    lines = SETUP["options.extras_require"][name].split("\n")
    return [Requirement(line) for line in lines if line.strip()]


FOR_WORK = [requirement for name in SETUP["options.extras_require"] for requirement in extra(name)]


def pins(name):
    """The versions of a file of constraints, each exactly one."""
    lines = [line for line in (ROOT / name).read_text().split("\n") if line and line[0] != "#"]
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[^,*<>=\s]+", line)] == []
    found = {canonicalize_name(line.split("==")[0]): line.split("==")[1] for line in lines}
    assert len(found) == len(lines)
    return found


PINS = pins("constraints.txt")
EXACT = {"torch": "2.14.1", "torchvision": "0.29.1", "avalanche-lib": "0.6.0", "timm": "1.0.30"}


def test_a_requirement_has_a_lower_and_an_upper_bound_and_is_pinned_inside_them():
    assert [
        str(requirement)
        for requirement in (*REQUIRED, *FOR_WORK)
        if {specifier.operator for specifier in requirement.specifier} != {">=", "<"}
        or PINS[canonicalize_name(requirement.name)] not in requirement.specifier
    ] == []


def test_the_four_engines_are_pinned_to_the_versions_the_project_is_made_for():
    assert {name: PINS[name] for name in EXACT} == EXACT


def test_the_lowest_versions_are_the_lower_bounds():
    bounds = {
        canonicalize_name(requirement.name): Version(specifier.version)
        for requirement in (*REQUIRED, *extra("test"))
        for specifier in requirement.specifier
        if specifier.operator == ">="
    }
    lowest = {name: Version(pin) for name, pin in pins("constraints-lowest.txt").items()}
    assert lowest == bounds


def test_the_page_of_versions_has_the_bounds_and_the_pins():
    lowest, lines = pins("constraints-lowest.txt"), (ROOT / "docs" / "versions.md").read_text()
    rows = re.findall(r"^\| ([a-z-]+) \| ([\d.]+) \| ([\d.]+) \|$", lines, re.M)
    assert len(rows) >= 6
    assert [row for row in rows if row[1:] != (lowest[row[0]], PINS[row[0]])] == []


def installed(name):
    """The version that an import would find; None where it is not installed. setuptools brings
    copies of some along, further down.
    """
    try:
        return Version(metadata.version(name)).public
    except metadata.PackageNotFoundError:
        return None


def test_what_runs_here_is_what_is_pinned():
    assert {
        name: installed(name) for name, pin in PINS.items() if installed(name) not in (pin, None)
    } == {}
    assert [r.name for r in (*REQUIRED, *FOR_WORK) if installed(r.name) is None] == []


def test_the_conda_environment_installs_this_project_with_the_same_pins_and_python():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    python = next(
        entry
        for entry in environment["dependencies"]
        if isinstance(entry, str) and entry.startswith("python=")
    )
    pip = next(entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict))
    assert pip == ["--constraint constraints.txt", "--editable .[test,docs]"]
    assert python.removeprefix("python=") in SpecifierSet(SETUP["options"]["python_requires"])
    assert environment["name"] == SETUP["metadata"]["name"]


def test_python_is_the_same_everywhere():
    required = SpecifierSet(SETUP["options"]["python_requires"])
    assert str(required) == ">=3.11" and ".".join(map(str, sys.version_info[:3])) in required
    pyproject = (ROOT / "pyproject.toml").read_text()
    assert 'target-version = "py311"' in pyproject and 'python_version = "3.11"' in pyproject
    makefile = (ROOT / "Makefile").read_text()
    assert (
        "--constraint constraints.txt --editable '.[test,docs]'" in makefile
        and "(3, 11)" in makefile
    )


def test_the_version_is_that_of_the_metadata():
    assert avalanche_hfc.__version__ == metadata.version("avalanche_hfc")
    assert re.fullmatch(r"\d+\.\d+\.\d+", avalanche_hfc.__version__)


def test_the_command_hfc_is_declared_and_leads_to_a_function():
    entry = next(
        entry for entry in metadata.entry_points(group="console_scripts") if entry.name == "hfc"
    )
    assert entry.value == "avalanche_hfc.lab.cli:main"
    assert callable(entry.load())


def test_every_public_name_can_be_imported():
    assert [
        name for name in avalanche_hfc.__all__ if getattr(avalanche_hfc, name, None) is None
    ] == []
    assert set(avalanche_hfc.__all__) <= set(dir(avalanche_hfc))


def test_an_unknown_name_is_an_attribute_error_that_lists_the_public_ones():
    with pytest.raises(AttributeError, match="'HFC'. Public names: .*HFCStrategy"):
        avalanche_hfc.HFC


def test_every_folder_of_the_package_is_installed():
    folders = {path.parent for path in (ROOT / "avalanche_hfc").rglob("*.py")}
    assert [str(folder) for folder in folders if not (folder / "__init__.py").exists()] == []
    assert (ROOT / "avalanche_hfc" / "py.typed").exists()


def test_the_ci_script_can_be_executed():
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_the_files_around_the_code_name_the_same_versions():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == avalanche_hfc.__version__
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert hooks[0]["rev"] == f"v{PINS['ruff']}" and hooks[1]["hooks"][0]["entry"] == "make types"
    (job,) = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"].values()
    assert job["steps"][-1]["run"] == ".ci/run"
    assert job["container"].startswith(f"python:{SETUP['options']['python_requires'][2:]}")
