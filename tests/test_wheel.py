"""What is built can be installed and used away from the checkout."""

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ["avalanche_hfc", "docs", "experiments", "tests"]
BUILD = (
    "import sys; from setuptools import build_meta; getattr(build_meta, sys.argv[1])(sys.argv[2])"
)


def call(*command, cwd, **environment):
    result = subprocess.run(
        command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    """The unpacked source distribution of a copy of the checkout."""
    folder = tmp_path_factory.mktemp("sdist")
    for name in FOLDERS:
        shutil.copytree(
            ROOT / name, folder / "checkout" / name, ignore=shutil.ignore_patterns("__pycache__")
        )
    for path in filter(Path.is_file, ROOT.iterdir()):
        shutil.copy(path, folder / "checkout")
    call(sys.executable, "-c", BUILD, "build_sdist", folder, cwd=folder / "checkout")
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        archive.extractall(folder, filter="data")
    return next(path for path in folder.glob("avalanche_hfc-*") if path.is_dir())


@pytest.fixture(scope="module")
def site(sdist, tmp_path_factory):
    """A folder that holds the wheel built from the source distribution, and nothing else."""
    folder = tmp_path_factory.mktemp("wheel")
    call(sys.executable, "-c", BUILD, "build_wheel", folder, cwd=sdist)
    install = "-m pip install --quiet --no-deps --no-index --target site".split()
    call(sys.executable, *install, next(folder.glob("*.whl")), cwd=folder)
    return folder / "site"


def files(folder):
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_wheel_carries_every_file_of_the_package(site):
    assert files(site / "avalanche_hfc") == files(ROOT / "avalanche_hfc")


def test_the_source_distribution_carries_the_package_and_what_its_tests_need(sdist):
    assert {name: files(ROOT / name) - files(sdist / name) for name in FOLDERS} == {
        name: set() for name in FOLDERS
    }


def test_the_installed_command_runs_its_selftest(site, tmp_path):
    environment = {"PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"}
    where = "import avalanche_hfc; print(avalanche_hfc.__file__)"
    found = call(sys.executable, "-c", where, cwd=tmp_path, **environment).strip()
    assert Path(found).is_relative_to(site)
    printed = call(site / "bin" / "hfc", "selftest", cwd=tmp_path, **environment)
    assert printed.count("ok  ") >= 11 and "FAILED" not in printed
