"""`hfc list` and `hfc show` as a user types them."""

import re
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
from click.testing import CliRunner

from avalanche_hfc.lab import TABLES, all_names, recipe
from avalanche_hfc.lab.cli import commands
from avalanche_hfc.lab.tables import FURTHER_TABLES

ROOT = Path(__file__).parents[3]


def said(*arguments):
    result = CliRunner().invoke(commands, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def expanded(line):
    """What a shell makes of a line with braces."""
    parts = re.split(r"\{([^}]*)\}", line)
    return [
        "".join(chosen)
        for chosen in product(
            *(part.split(",") if place % 2 else [part] for place, part in enumerate(parts))
        )
    ]


def sections(text):
    """(table, scale) -> lines below it."""
    found = {}
    for line in text.splitlines():
        heading = re.match(r"(\S+) @(\w+)", line)
        if heading:
            lines = found.setdefault(heading.groups(), [])
        elif line.startswith("  "):
            lines.append(line.strip())
    return found


def test_the_braces_of_every_table_and_scale_stand_for_its_recipes_and_no_others():
    found = sections(said("list"))
    assert set(found) == {
        (table, scale) for table, scales in {**TABLES, **FURTHER_TABLES}.items() for scale in scales
    }
    for (table, scale), lines in found.items():
        names = [name for line in lines for name in expanded(line)]
        assert len(set(names)) == len(names)
        assert set(names) == {entry.recipe for entry in {**TABLES, **FURTHER_TABLES}[table][scale]}
    assert {name for lines in found.values() for line in lines for name in expanded(line)} == set(
        all_names()
    )


def test_a_pattern_names_each_match_once_under_its_first_table():
    assert sections(said("list", "cifar100-b0-t10-hfc@*")) == {
        ("cifar100", "paper"): ["cifar100-b0-t10-hfc@paper"],
        ("cifar100", "small"): ["cifar100-b0-t10-hfc@small"],
        ("comparison", "medium"): ["cifar100-b0-t10-hfc@medium"],
    }
    only = "cifar100-b50-t10-m20-foster+hfc-resnet32@paper"
    assert sections(said("list", "b50-t10-m20-foster+hfc")) == {("per-class-20", "paper"): [only]}
    assert sorted(
        name for lines in sections(said("list", "*")).values() for name in lines
    ) == sorted(all_names())


def test_show_tells_every_value_with_its_source():
    text = said("show", "cifar100-b50-t5-m20-icarl+hfc-resnet32@paper")
    own = recipe("cifar100-b50-t5-m20-icarl+hfc-resnet32@paper")
    lines = {line.split()[0]: line for line in text.splitlines() if "." in line.split(" ")[0]}
    assert list(lines) == list(own.leaves())
    assert lines["train.lr"].split(maxsplit=2) == ["train.lr", "2.0", "published: iCaRL"]
    assert lines["memory.per_class"].split(maxsplit=2) == [
        "memory.per_class",
        "20",
        "the paper's tables",
    ]
    assert "hfc run cifar100-b50-t5-m20-icarl+hfc-resnet32@paper --data FOLDER" in text
    assert (
        "table per-class-20: row icarl, losses hfc, backbone resnet-32" in text
        and "data-centre GPU" in text
    )
    assert "losses of HFCStrategy" not in text


def test_show_tells_what_the_forms_of_hfc_change():
    text = said("show", "cifar100-b0-t10-hfc@paper")
    assert "* default " in text and "  official " in text
    forms = text.split("\n\n")[-2:]
    assert forms[0].splitlines() == [
        "cifar100-b0-t10-hfc-paper@paper changes",
        "  method.form: default -> paper",
    ]
    assert (
        "  model.adapter_dim: 0 -> 64" in forms[1].splitlines()
        and "  data.transforms: dytox -> official" in forms[1].splitlines()
    )
    text = said("show", "cifar100-b0-t10-hfc-official@paper")
    assert "* official " in text and "  model.adapter_dim: 64 -> 0" in text.splitlines()


def test_show_takes_values_of_the_user():
    text = said("show", "digits-b0-t5-hfc@demo", "--epochs", "3", "--method.relation-weight=0.5")
    assert "hfc run digits-b0-t5-hfc@demo --train.epochs=3 --method.relation-weight=0.5\n" in text
    assert re.search(r"train\.epochs +3 +given by the user\n", text)
    assert re.search(r"method\.relation_weight +0\.5 +given by the user\n", text)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("show", "cifar100-b0-t10-hcf@paper"), "Did you mean cifar100-b0-t10-hfc@paper"),
        (("list", "cifar100-b0-t10-hcf@paper"), "Near ones: cifar100-b0-t10-hfc@paper"),
        (("show", "digits-b0-t5-hfc@demo", "--epoch", "3"), "Did you mean train.epochs"),
        (("show", "digits-b0-t5-hfc@demo", "--epochs"), "--epochs needs a value"),
        (("show", "digits-b0-t5-hfc@demo", "--epochs", "--lr", "1"), "--epochs needs a value"),
        (
            ("show", "digits-b0-t5-hfc@demo", "--epochs", "x"),
            "train.epochs must be a whole number, got 'x'",
        ),
        (
            ("show", "digits-b0-t5-hfc@demo", "--epochs=1", "--epochs", "2"),
            "--epochs is given more than once",
        ),
        (("show", "digits-b0-t5-hfc@demo", "epochs"), "unexpected extra argument (epochs)"),
    ],
    ids=lambda value: " ".join(value[1:]) if isinstance(value, tuple) else "",
)
def test_a_mistake_is_answered_with_the_near_ones_and_exit_code_2(shell, arguments, words):
    code, output, errors = shell(*arguments)
    assert code == 2 and words in errors and output == ""


def test_list_needs_no_torch():
    for arguments in (("list",), ("list", "cifar100-*-hfc@*")):
        code = (
            f"import sys; sys.argv = ['hfc', *{arguments!r}]\nfrom avalanche_hfc.lab.cli import main\nmain()\n"
            "print({'torch', 'avalanche', 'numpy', 'pandas'} & set(sys.modules))"
        )
        result = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT
        )
        assert result.stdout.splitlines()[-1] == "set()", result.stderr


def test_list_names_recipes_for_your_data_and_methods_that_exist(tmp_path, monkeypatch, request):
    (tmp_path / "mymethods.py").write_text(
        "from avalanche_hfc.strategies import HerdingReplay\nclass Mine(HerdingReplay):\n    pass\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mymethods", raising=False)
    request.addfinalizer(lambda: sys.modules.pop("mymethods", None))
    named = [
        name.rstrip(",.")
        for line in said("list").splitlines()
        if line.startswith("Your ")
        for name in line.split()
        if "@" in name
    ]
    assert len(named) == 4 and [recipe(name).data.dataset for name in named] == [
        "folder",
        "npz",
        "folder",
        "cifar100",
    ]
