"""The shape of the package: who may import whom."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "avalanche_hfc"
ORDER = "ranks losses models memory benchmarks metrics plugins compat strategies lab".split()
LAB = {"lab", "report"}  # the report reads what the lab writes, and stands beside it
FILES = sorted(PACKAGE.rglob("*.py"))
IN_LAYERS = [
    path for path in FILES if path.relative_to(PACKAGE).with_suffix("").parts[0] in {*ORDER, *LAB}
]


def level(room):
    """The place of a room in ORDER."""
    return len(ORDER) - 1 if room in LAB else ORDER.index(room)


def imported(path, tree=None):
    """(line, dotted name) of every import of a file; relative ones resolved; the names of `from x
    import y` as x.y.
    """
    package = path.relative_to(ROOT).with_suffix("").parts[:-1]
    for node in ast.walk(tree or ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*start, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)
        elif (
            isinstance(node, ast.Call)
            and called(node) in ("import_module", "__import__")
            and isinstance(node.args[0], ast.Constant)
        ):
            yield node.lineno, str(node.args[0].value)


def called(call):
    """The last name of what is called."""
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def wrong_imports(path, tree=None):
    layer = path.relative_to(PACKAGE).with_suffix("").parts[0]
    for line, name in imported(path, tree):
        parts = name.split(".")
        if parts[0] == "experiments":
            yield f"{path}:{line}: imports experiments"
        elif (
            parts[0] == "avalanche_hfc"
            and len(parts) > 1
            and parts[1] in {*ORDER, *LAB}
            and level(parts[1]) > level(layer)
        ):
            yield f"{path}:{line}: {layer} imports {parts[1]}"


def test_a_layer_imports_only_from_layers_above_it():
    assert [line for path in IN_LAYERS for line in wrong_imports(path)] == []


def test_every_file_belongs_to_a_layer():
    assert [path.name for path in FILES if path not in IN_LAYERS] == [
        "__init__.py",
        "__main__.py",
        "_arguments.py",
        "_checks.py",
        "_compiled.py",
        "_names.py",
        "_types.py",
        "_version.py",
    ]


DOWNWARDS = [
    "from avalanche_hfc.strategies import HFCStrategy",
    "from avalanche_hfc import strategies",
    "import avalanche_hfc.lab.cli",
    "from ..lab import rows",
    "from .. import lab",
    "import_module('avalanche_hfc.strategies')",
    "import experiments.bench",
    "def f():\n    from avalanche_hfc.plugins.herding import HerdingReplayPlugin",
]


def test_every_way_to_import_downwards_is_seen():
    upper = PACKAGE / "losses" / "compensation.py"
    seen = {line: list(wrong_imports(upper, ast.parse(line))) for line in DOWNWARDS}
    assert [line for line, wrong in seen.items() if len(wrong) != 1] == []


@pytest.mark.parametrize("module", ["avalanche_hfc", "avalanche_hfc.lab", "avalanche_hfc.lab.cli"])
def test_importing_it_needs_neither_torch_nor_avalanche(module):
    code = (
        f"import sys, {module}; "
        f"print(*sorted({{'torch', 'avalanche', 'timm', 'pandas', 'matplotlib'}} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == []
