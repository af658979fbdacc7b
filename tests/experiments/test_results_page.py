"""The pages on real images follow from rows: planted results give the sentences expected."""

import math
import runpy
import shutil
import statistics
import sys
from pathlib import Path

import pandas as pd
import planted_rows
import pytest
from pages import section as below
from pages import tables
from PIL import Image

from avalanche_hfc.lab.tables import ALL_TABLES, EIGHT, HOSTS

ROOT = Path(__file__).parents[2]
EXPERIMENTS = ROOT / "experiments"
COMPARISON = ALL_TABLES["comparison"]["small"]
NOISE = (0.0, 0.4, -0.4, 0.2, -0.2)  # of a seed, in all rows


def name_of(row, protocol="b0-t5"):
    return f"cifar100-{protocol}-{row}@small"


@pytest.fixture(autouse=True)
def on_path(monkeypatch):
    monkeypatch.syspath_prepend(str(EXPERIMENTS))


@pytest.fixture
def no_figures(monkeypatch):
    """For tests of the text alone: figures take most of the time."""
    monkeypatch.setattr("real_images.page.figures", lambda *rows: {})


@pytest.fixture
def pages(tmp_path):
    """A place with the two pages, their parts empty; gives a function that generates them."""
    root = tmp_path / "root"
    (root / "docs" / "images").mkdir(parents=True)
    for page in ("README.md", "docs/results.md"):
        (root / page).write_text(
            f"# {page}\nbefore\n<!-- real-images -->\nold\n<!-- /real-images -->\nafter\n"
        )

    def generate(rows):
        from real_images.page import files_of

        files = files_of(rows, root)
        return {path.relative_to(root).as_posix(): content for path, content in files.items()}

    generate.root = root
    return generate


def lasts(values, seeds=range(5)):
    """(recipe, seed) to accuracy: planted values, with a noise that all rows of a seed share and,
    where a pair is given, one of their own.
    """
    found = {}
    for name, value in values.items():
        base, own = value if isinstance(value, tuple) else (value, 0.0)
        for seed in seeds:
            found[name, seed] = base + NOISE[seed] + own * (-1) ** seed
    return found


def comparison(**changed):
    """Values of the whole comparison: HFC 50, every other 40."""
    values = {entry.recipe: 40.0 for entry in COMPARISON} | {name_of("hfc"): 50.0}
    return values | {name_of(row): value for row, value in changed.items()}


def item(text, start):
    found = [line for line in text.splitlines() if line.startswith(start)]
    assert len(found) == 1, (start, found)
    return found[0]


def lists(page):
    """The lists of claims, by their titles."""
    text = below(page, "### What the paper claims")
    parts = text.split("**")[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


@pytest.mark.usefixtures("no_figures")
def test_planted_wins_ties_and_losses_are_told_as_what_they_are(pages, tmp_path):
    values = comparison(icarl=(49.9, 3.0), dytox=53.0, ncm=52.0)
    rows = planted_rows.write(tmp_path / "rows", lasts(values))
    made = pages(rows)
    page = made["docs/results.md"]
    claims = lists(page)
    won = item(claims["Confirmed"], "- HFC has a higher average than")
    for row in set(EIGHT) - {"icarl", "dytox"}:
        assert f"`{row}` (+10.0 ± 0.0)" in won
    tied, lost = (
        item(claims[title], "- HFC has a higher average than")
        for title in ("No difference found", "The opposite found")
    )
    error = statistics.stdev([-2.9, 3.1, -2.9, 3.1, -2.9]) / math.sqrt(5)
    mean = statistics.mean([-2.9, 3.1, -2.9, 3.1, -2.9])
    assert tied == f"- HFC has a higher average than `icarl` ({mean:+.1f} ± {error:.1f})."
    assert lost == "- HFC has a higher average than `dytox` (-3.0 ± 0.0)."
    assert "icarl" not in won and "dytox" not in won
    said = (
        " HFC is not the best: `dytox` (+3.0 ± 0.0) and `ncm` (+2.0 ± 0.0) are above it; no "
        f"difference from it was found in `icarl` ({-mean:+.1f} ± {error:.1f})"
    )
    by = below(page, "### Methods compared").strip().splitlines()[:3]
    measures = ("By the average over steps", "By the average without", "By the last accuracy")
    behind = len(COMPARISON) - 5  # without HFC, these three and joint, an upper bound
    for line, words in zip(by, measures, strict=True):
        assert line.startswith(f"- {words}")
        assert line.endswith(f"{said}; the other {behind} are below it.")
    readme = made["README.md"]
    assert f"By the average over steps{said}. By the last accuracy{said}. In brackets" in readme
    for text in (page, readme):
        counts = tables(text)[
            "| claim of the paper | confirmed | no difference found | the opposite |"
        ]
        higher, printed, released, fh = counts
        assert higher[1:] == [str(len(EIGHT) - 2), "1", "1"]
        assert fh[1:] == ["0", "4", "0"]  # all have 60; its parts have no rows here
        assert printed[1:] == released[1:] == ["0", "6", "2"]  # 40, as six of the eight
    assert "- With the equations as printed (`hfc-paper`), HFC has" in claims["No difference found"]


@pytest.mark.usefixtures("no_figures")
def test_a_best_method_is_called_the_best_and_stands_first(pages, tmp_path):
    made = pages(planted_rows.write(tmp_path / "rows", lasts(comparison(podnet=45.0, joint=90.0))))
    part = below(made["docs/results.md"], "### Methods compared")
    behind = len(COMPARISON) - 2
    assert part.strip().startswith(
        f"- By the average over steps HFC is the best; the other {behind} are below it.\n"
    )
    (heading, lines), *_ = tables(part).items()
    columns = [cell.strip() for cell in heading.split("|")[1:-1]]
    first = dict(zip(columns, lines[0], strict=True))
    error = statistics.stdev(NOISE) / math.sqrt(5)
    assert first["method"] == "`hfc`" and first["average"] == f"**55.0 ± {error:.1f}**"
    assert first["last"] == f"**50.0 ± {error:.1f}**" and first["average in the paper"] == "86.4"
    assert first["FH in the paper"] == "103.6" and first["fh"] == "60.0 ± 0.0"
    assert [line[0] for line in lines[:2]] == ["`hfc`", "`podnet`"] and lines[-1][0] == "`joint`"
    podnet = dict(zip(columns, lines[1], strict=True))
    assert podnet["Δ average"] == "+5.0 ± 0.0" and podnet["average in the paper"] == "75.3"
    assert sum("**" in cell for line in lines for cell in line) == 4
    assert "Not trained yet" not in part
    shown = next(iter(tables(made["README.md"]).values()))
    assert [line[0] for line in shown][:2] == ["`hfc`", "`podnet`"]
    assert {"`herding-replay`", "`ncm`"} < {line[0] for line in shown} and len(shown) <= 6
    fh = {line[0].strip("`"): line[columns.index("fh")] for line in lines}
    without = {"ncm", "ranpac", "avalanche-icarl-fixed", "joint"}  # no logits, or one step
    assert {row for row, cell in fh.items() if cell == "–"} == without


@pytest.mark.usefixtures("no_figures")
def test_what_the_losses_and_the_parts_add_is_read_from_their_own_tables(pages, tmp_path):
    values = {name_of(row): 40.0 for row in HOSTS}
    values |= {name_of(f"{row}+hfc"): 43.0 for row in HOSTS} | {name_of("foster+hfc"): 38.0}
    values |= {name_of("baseline+tsa"): 44.0, name_of("baseline+tsa+gfc"): 44.0}
    values |= {name_of("baseline+tsa+hfc"): 46.0, name_of("hfc"): 49.0}
    values |= {name_of("baseline+gfc"): 41.0, name_of("baseline+grd"): 41.0}
    rows = planted_rows.write(
        tmp_path / "rows",
        lasts(values),
        fh={name_of("hfc"): 40, name_of("baseline+tsa+hfc"): 50, name_of("baseline"): 70},
    )
    page = pages(rows)["docs/results.md"]
    claims = lists(page)
    losses = item(claims["Confirmed"], "- Both losses raise the average,")
    assert all(f"`{row}` (+3.0 ± 0.0)" in losses for row in EIGHT if row != "foster")
    assert "`foster` (-2.0 ± 0.0)" in claims["The opposite found"]
    parts = item(claims["Confirmed"], "- A part of HFC raises the average:")
    assert parts == (
        "- A part of HFC raises the average: TSA in place of the last block of `baseline` "
        "(+4.0 ± 0.0) and L_RD in place of the distillation of `baseline+tsa+gfc` (+2.0 ± 0.0)."
    )
    assert "L_FC in `baseline+tsa` (+0.0 ± 0.0)" in claims["No difference found"]
    (heading, lines), *_ = tables(below(page, "### Parts of HFC")).items()
    lead = [cell.strip() for cell in heading.split("|")[1:-1]].index("Δ average")
    assert {line[0]: line[lead] for line in lines if "hfc" in line[0]} == {
        "`baseline+hfc`": "+3.0 ± 0.0",
        "`baseline+tsa+hfc`": "–",
        "`hfc`": "-3.0 ± 0.0",
    }
    fh = item(claims["Confirmed"], "- With the values of `baseline`, HFC has a lower FH than")
    assert "`baseline` (-20.0 ± 0.0)" in fh  # not -30: `hfc` has other values
    table = below(page, "### L_FC and L_RD inside other methods")
    (heading, lines), (measures, whole) = tables(table).items()
    names = [line[0].strip("`") for line in whole]
    assert names[::2] == list(HOSTS) and names[1::2] == [f"{row}+hfc" for row in HOSTS]
    assert "Δ" not in measures and "| forgetting | fh | seconds |" in measures
    assert heading.endswith("| Δ average in the paper |")
    found = {line[0].strip("`"): line for line in lines}
    assert found["icarl"][-3:] == ["+3.0 ± 0.0", "+3.0 ± 0.0", "+1.6"]
    assert found["herding-replay"][-1] == "–" and "ResNet-32" in table


@pytest.mark.usefixtures("no_figures")
def test_missing_rows_are_named_and_whole_tables_too(pages, tmp_path):
    values = lasts(comparison())
    for seed in (3, 4):
        del values[name_of("foster"), seed]
    for seed in range(5):
        del values[name_of("afc"), seed]
    made = pages(planted_rows.write(tmp_path / "rows", values))
    page = made["docs/results.md"]
    assert "over 3 seeds;" in made["README.md"]  # those that all rows have
    part = below(page, "### Methods compared")
    assert (
        f"Not trained yet: `{name_of('foster')}` (seed 3, 4), `{name_of('afc')}` (seed 0, 1, 2, 3, "
        "4)."
    ) in part
    assert part.strip().startswith("| method |")  # foster may be above: no word on the best yet
    assert "HFC is the best" not in page + made["README.md"]
    claims = lists(page)
    unknown = claims["Not tested: rows are missing"]
    assert "- HFC has a higher average than `foster` and `afc`." in unknown  # three seeds of five
    told = claims["Confirmed"] + claims["No difference found"] + claims["The opposite found"]
    assert "foster" not in told
    assert "method without them, of `icarl`," in unknown
    waiting = below(page, "### Not trained yet")
    for table, seeds in (("memory", 3), ("order", 5)):
        assert f"`hfc table {table} --scale small --seeds {seeds}`" in waiting
    assert "`hfc table comparison --scale medium --seeds 1`" in waiting
    assert "table comparison --scale small" not in waiting


@pytest.mark.usefixtures("no_figures")
def test_one_seed_decides_nothing(pages, tmp_path):
    rows = planted_rows.write(tmp_path / "rows", lasts(comparison(), seeds=[0]))
    made = pages(rows)
    claims = lists(made["docs/results.md"])
    for title in ("Confirmed", "No difference found", "The opposite found"):
        assert claims[title].strip() == "- Nothing."
    assert "HFC is the best" not in made["docs/results.md"] + made["README.md"]
    assert "over 1 seed;" in made["README.md"] and "claim of the paper" not in made["README.md"]
    told = below(made["docs/results.md"], "### Methods compared")
    assert "A difference of one seed is not tested." in told and "t-test" not in told
    (heading, lines), *_ = tables(told).items()
    lead = [cell.strip() for cell in heading.split("|")[1:-1]].index("Δ last")
    assert "+10.0" in {line[lead] for line in lines}  # no mark behind it


def test_figures_are_small_show_the_rows_and_come_out_the_same_again(pages, tmp_path):
    def made(folder, **changed):
        values = comparison(**changed) | {name_of(f"{row}+hfc"): 43.0 for row in HOSTS}
        values |= {name_of("baseline"): 40.0}
        mapped = [name_of("hfc"), name_of("herding-replay")]
        rows = planted_rows.write(tmp_path / folder, lasts(values), mapped=mapped)
        return {name: png for name, png in pages(rows).items() if name.endswith(".png")}

    first, again, other = made("a"), made("b"), made("c", hfc=30.0)
    assert sorted(first) == [
        "docs/images/small-accuracy.png",
        "docs/images/small-classes-herding-replay.png",
        "docs/images/small-classes-hfc.png",
        "docs/images/small-fh.png",
    ]
    assert first == again and all(len(png) < 60_000 for png in first.values())
    same = {name for name in first if first[name] == other[name]}
    assert same == {"docs/images/small-classes-herding-replay.png"}


def test_the_script_replaces_the_marked_parts_alone_and_nothing_is_left_without_rows(
    pages, tmp_path, monkeypatch, capsys
):
    def call(rows):
        words = ["results_page.py", str(rows), str(pages.root)]
        monkeypatch.setattr(sys, "argv", words)
        runpy.run_path(str(EXPERIMENTS / "results_page.py"), run_name="__main__")
        return {page: (pages.root / page).read_text() for page in ("README.md", "docs/results.md")}

    rows = planted_rows.write(tmp_path / "rows", lasts(comparison()), mapped=[name_of("hfc")])
    texts = call(rows)
    for page, text in texts.items():
        assert text.startswith(f"# {page}\nbefore\n<!-- real-images -->\n## Real images\n")
        assert text.endswith("<!-- /real-images -->\nafter\n") and "\nold\n" not in text
    picture = Image.open(pages.root / "docs" / "images" / "small-classes-hfc.png")
    assert picture.width > 300
    assert call(rows) == texts
    shutil.rmtree(rows)
    empty = call(tmp_path / "rows")
    assert {text.partition("<!-- real-images -->\n")[2] for text in empty.values()} == {
        "<!-- /real-images -->\nafter\n"
    }
    (pages.root / "README.md").write_text("no mark\n")
    with pytest.raises(SystemExit) as end:
        call(rows)
    assert end.value.code == 2 and "README.md must have one part between" in capsys.readouterr().err


def test_a_finding_is_told_only_while_the_rows_bear_it_out():
    from real_images.why import Change, Finding, told

    def said(second, seeds=3, sign=1):
        lines = [("a", seed, 50.0 + NOISE[seed]) for seed in range(seeds)]
        lines += [("b", seed, second + NOISE[seed]) for seed in range(seeds)]
        measures = pd.DataFrame(lines, columns=["row", "seed", "last"]).set_index(["row", "seed"])
        finding = Finding("It is {} higher.", (Change("a", "b", sign, "last"),))
        return told([finding], measures)

    assert said(48.0) == ["It is +2.0 ± 0.0 higher."]
    assert said(52.0) == said(50.0) == said(48.0, seeds=2) == said(48.0, sign=0) == []
    assert said(50.0, sign=0) == ["It is +0.0 ± 0.0 higher."]
