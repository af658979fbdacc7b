"""The page: what stands in it, and that nothing is missing where a run wrote less."""

import base64
import json
import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from synthetic_runs import HUNDRED, write_run, write_runs

from avalanche_hfc.report import pictures_of, write_report
from avalanche_hfc.report.classes import as_address
from avalanche_hfc.report.figures import (
    FOR_PRINT,
    HEAT,
    NARROW,
    SERIES,
    SERIES_DARK,
    WIDE,
    Curve,
    Panel,
    as_svg,
    draw,
    heat_colour,
)
from avalanche_hfc.report.page import Heat, as_html
from avalanche_hfc.report.sections import make_report


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return write_runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def report(runs):
    return make_report(runs)


@pytest.fixture(scope="module")
def html(report):
    return as_html(report)


class Reader(HTMLParser):
    """Ids, links, text and unclosed elements of a page."""

    EMPTY = {"meta", "link", "img", "col", "br", "path", "use", "rect", "polyline"}

    def __init__(self, html):
        super().__init__()
        self.open, self.wrong, self.ids, self.addresses, self.text, self.tags = (
            [],
            [],
            [],
            [],
            [],
            [],
        )
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self.ids += [value for name, value in attributes if name == "id"]
        self.addresses += [
            value for name, value in attributes if name in ("src", "href", "xlink:href")
        ]
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in self.EMPTY:
            self.open.pop()

    def handle_endtag(self, tag):
        if tag in self.EMPTY:
            return
        if not self.open or self.open.pop() != tag:
            self.wrong.append((tag, self.getpos()))

    def handle_data(self, data):
        self.text.append(data)


def words(html):
    return re.sub(r"\s+", " ", " ".join(Reader(html).text))


def test_the_page_is_whole_and_needs_nothing_else(html):
    page = Reader(html)
    assert page.wrong == [] and page.open == []
    assert len(page.ids) == len(set(page.ids))
    assert [address for address in page.addresses if not address.startswith(("data:", "#"))] == []
    assert {address[1:] for address in page.addresses if address.startswith("#")} <= set(page.ids)
    assert (
        "http" not in re.sub(r'xmlns(:\w+)?="[^"]*"', "", html)
        and "<script" not in html
        and "@import" not in html
    )


def test_figures_follow_the_colours_and_the_font_of_the_page(html):
    drawings = "".join(re.findall(r'<svg class="plot".*?</svg>', html, flags=re.DOTALL))
    assert {"var(--s0)", "var(--s8)"} <= set(re.findall(r"var\(--s\d\)", drawings))
    assert "var(--ink)" in drawings and "var(--muted)" in drawings and "DejaVu" not in drawings
    assert set(re.findall(r"#[0-9a-f]{6}", drawings)) <= {"#000000"}
    assert "prefers-color-scheme:dark" in html and all(
        colour in html for colour in (*SERIES, *SERIES_DARK, *HEAT)
    )


def test_every_figure_says_what_it_shows_and_stands_there_for_wide_and_narrow(html):
    figures = [
        attributes
        for tag, attributes in Reader(html).tags
        if tag == "svg" and attributes.get("class") == "plot"
    ]
    assert len(figures) == 6 and all(len(own["aria-label"]) > 20 for own in figures)
    assert {own["viewbox"].split()[2] for own in figures} == {str(WIDE.width), str(NARROW.width)}


def test_each_number_stands_below_its_definition(report, runs):
    table = report.sections[0].blocks[1]
    last = pd.concat([pd.read_csv(path / "steps.csv").tail(1) for path in runs[:3]])
    row = next(row for row in table.rows if row[0].text == "hfc")
    cells = dict(zip(table.head, row, strict=True))
    for heading, values in (
        (
            ("average %", "mean over all steps of the accuracy on the classes seen by then"),
            last["average"],
        ),
        (("last %", "accuracy on all classes after the last step"), last["accuracy"]),
    ):
        values = values * 100
        assert cells[heading].text == f"{values.mean():.1f} ± {values.std():.1f}"


def test_every_class_has_its_accuracy_after_every_step(html, runs):
    rows = re.findall(
        r'<tr(?: class="first")?><th scope="row" title="two, arrived in step 2">two</th>(.*?)</tr>',
        html,
    )
    cells = re.findall(r'<td(?: class="h(\d+)")?>(\d*)</td>', rows[0])
    classes = (
        pd.concat([pd.read_csv(path / "classes.csv") for path in runs[:3]])
        .query("name == 'two'")
        .groupby("step")
    )
    accuracies = (classes["correct"].sum() / classes["total"].sum()).tolist()
    assert cells == [
        ("", ""),
        *((str(heat_colour(value)), str(round(100 * value))) for value in accuracies),
    ]


def test_the_page_can_be_deleted_and_made_again(tmp_path):
    folder = write_run(tmp_path / "run", num_steps=2)
    rows = {path.name: path.read_bytes() for path in folder.iterdir()}
    page = write_report([folder], tmp_path / "out")
    before = page.read_bytes()
    page.unlink()
    assert write_report([folder], tmp_path / "out") == page == tmp_path / "out" / "report.html"
    assert page.read_bytes() == before and list(page.parent.iterdir()) == [page]
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == rows


@pytest.mark.parametrize("missing", ["train", "classes", "confusion", "exemplars", "all"])
def test_a_run_that_wrote_less_gives_a_page_without_holes(tmp_path, missing):
    folder = write_run(tmp_path / "run", num_steps=2, nme=False)
    for name in ("train", "classes", "confusion", "exemplars"):
        if missing in (name, "all"):
            (folder / f"{name}.csv").unlink()
    report = make_report([folder])
    names = [section.name for section in report.sections]
    gone = {
        "train": {"acting", "losses"},
        "classes": {"classes"},
        "exemplars": {"exemplars"},
        "confusion": set(),
    }
    gone["all"] = set().union(*gone.values())
    assert (
        set(names)
        == {"results", "accuracy", "evenness", "classes", "acting", "losses", "exemplars", "recipe"}
        - gone[missing]
    )
    assert all(section.blocks for section in report.sections)
    text = words(as_html(report))
    assert "nearest mean" not in text and not re.search(r"\b(nan|None)\b", text)
    assert ("predicted as" in text) == (missing not in ("classes", "confusion", "all"))


@pytest.mark.filterwarnings("error")
def test_one_step_of_one_seed_is_a_page(tmp_path):
    report = make_report([write_run(tmp_path, num_steps=1)])
    text = words(as_html(report))
    assert "1 step." in text and not re.search(r"\b(nan|None)\b", text) and "±" not in text


def test_a_joint_run_has_a_last_accuracy_and_no_average(tmp_path):
    paths = write_runs(tmp_path, seeds=[0], num_steps=3)
    steps = pd.read_csv(paths[1] / "steps.csv").tail(1).assign(average=np.nan, forgetting=np.nan)
    steps.to_csv(paths[1] / "steps.csv", index=False)
    sentence, table = make_report(paths).sections[0].blocks
    assert [row[1].text for row in table.rows][1] == "–" and not table.rows[0][1].best
    assert "Highest last accuracy: hfc" in sentence


def test_what_a_reader_must_know_stands_at_the_top(tmp_path):
    paths = write_runs(tmp_path, methods=["hfc"], seeds=[0, 1, 2], num_steps=3, shuffled=True)
    pd.read_csv(paths[2] / "steps.csv").head(2).to_csv(paths[2] / "steps.csv", index=False)
    held = json.loads((paths[0] / "recipe.json").read_text())
    del held["finished"]
    (paths[0] / "recipe.json").write_text(json.dumps(held))
    name = "digits-b0-t3-hfc@demo"
    assert make_report(paths).notices == [
        "Fewer steps than other seeds, in the curves but not in the results: "
        f"{name} seed 2 (2 of 3 steps).",
        f"Not finished, so that the last step is the last so far: {name} seed 0.",
        f"Classes arrive in another order and have maps of their own: {name} seed 1.",
    ]
    assert make_report(write_runs(tmp_path / "whole", seeds=[0])).notices == []
    both = write_runs(
        tmp_path / "both", methods=["hfc", "icarl"], seeds=[0, 1, 2], num_steps=3, shuffled=True
    )
    told = "Classes arrive in another order and have maps of their own: {}."
    assert make_report(both).notices == [told.format("all recipes, seeds 1, 2")]
    assert make_report(both[:-1]).notices == [told.format("hfc seeds 1, 2; icarl seed 1")]


def test_names_from_outside_are_text_and_nothing_else(tmp_path):
    evil = ("<script>alert(1)</script>", 'a"b', "pipe | and *", "four")
    report = make_report([write_run(tmp_path, names=evil, num_steps=2)])
    html = as_html(report)
    assert "<script" not in html and Reader(html).wrong == [] and "&lt;script&gt;" in html
    assert "pipe | and *" in html


def test_the_papers_numbers_stand_beside_ours(tmp_path):
    folder = write_run(tmp_path / "run", names=HUNDRED, num_steps=5)
    keys = dict(
        row="hfc",
        losses="host",
        backbone="vit-base",
        dataset="cifar100",
        base_fraction=0.0,
        num_steps=5,
        mem_size=2000,
    )
    keys |= {"table": "cifar100", "per_class": None}
    printed = {"average": 84.7, "step 1": 90.0, "step 2": 88.0}
    paper = pd.DataFrame(
        [
            {**keys, "column": column, "value": value, "mark": "a mark"}
            for column, value in printed.items()
        ]
    )
    paper.to_csv(tmp_path / "paper.csv", index=False)
    report = make_report([folder], paper=tmp_path / "paper.csv")
    text = words(as_html(report))
    ours = 100 * pd.read_csv(folder / "steps.csv")["average"].iloc[-1]
    gap = f"{ours - 84.7:+.1f}".replace("-", "−")
    assert (
        f"{ours:.1f} paper 84.7, gap {gap}" in text
        and "Of the paper's average of cifar100-b0-t5-hfc@paper: a mark." in text
    )
    curves = report.sections[1].blocks[0].panels[0].curves
    assert [curve.paper for curve in curves] == [False, True, False]
    assert curves[1].points["mean"].tolist() == [90.0, 88.0]
    with pytest.raises(FileNotFoundError, match="nothing.csv: no such file"):
        make_report([folder], paper=tmp_path / "nothing.csv")


def test_recipes_of_one_method_are_told_apart_by_their_values_and_colours(tmp_path):
    paths = []
    for epochs in range(1, 7):
        paths.append(write_run(tmp_path / str(epochs), num_steps=2))
        held = json.loads((paths[-1] / "recipe.json").read_text())
        held["recipe"]["train"]["epochs"] = epochs
        (paths[-1] / "recipe.json").write_text(json.dumps(held))
    table = make_report(paths).sections[0].blocks[1]
    assert [row[0].text for row in table.rows] == [
        f"digits-b0-t2-hfc@demo (train.epochs {epochs})" for epochs in range(1, 7)
    ]
    assert [row[0].colour for row in table.rows] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("num_classes", "lengths"), [(10, [10]), (34, [34]), (35, [18, 17]), (100, [34, 34, 32])]
)
def test_a_map_of_many_classes_stands_in_tables_of_equal_length(num_classes, lengths):
    index = pd.MultiIndex.from_tuples(
        [(0, own, str(own)) for own in range(num_classes)], names=["brought_in", "class", "name"]
    )
    values = pd.DataFrame(np.linspace(0, 1, num_classes)[:, None].repeat(2, 1), index=index)
    heat = Heat("", "", values, ["1", "2"], "after step")
    assert [len(rows) for rows in heat.tables] == lengths and heat.headings == ["1", "2"]
    assert heat.tables[0][0]["cells"][0] == (0, 0)
    assert heat.tables[-1][-1]["cells"][1] == (len(HEAT) - 1, 100)
    steps = [str(step) for step in range(1, 52)]
    wide = Heat("", "", pd.DataFrame(np.ones((1, 51))), steps, "after step")
    assert not wide.numbered
    assert [text for text in wide.headings if text] == ["1", "10", "20", "30", "40", "50"]


def test_the_means_of_gfc_and_grd_are_those_from_the_second_step_on(report, runs):
    section = next(section for section in report.sections if section.name == "acting")
    (row,) = section.blocks[0].rows
    later = pd.concat([pd.read_csv(path / "train.csv").query("step > 0") for path in runs[:3]])
    values = later["weight_spread"], 100 * later["alone_fraction"], later["loss_relation"]
    assert [cell.text for cell in row] == ["hfc", *(f"{value.mean():.3f}" for value in values)]
    assert "Neither loss is in herding-replay." in section.blocks[0].caption


def test_exemplars_are_pictures_of_their_positions_where_images_are_given(tmp_path):
    folder = write_run(tmp_path, num_steps=2)

    class Experience:
        def __init__(self, start, length):
            self.dataset = [
                (np.full((3, 4, 4), start + place) / 5000 * np.arange(4), 0)
                for place in range(length)
            ]

    class Benchmark:
        train_stream = [Experience(0, 2600), Experience(2600, 2600)]

    look = pictures_of(Benchmark)
    assert look(2599)[0, 0, 1] == 2599 / 5000 and look(2600)[0, 0, 1] == 2600 / 5000
    with pytest.raises(ValueError, match="Position 5200 is not in the benchmark: it has 5200"):
        look(5200)
    section = make_report([folder], pictures=lambda run: look).sections[-2]
    pictures = section.blocks[0]
    kept = pd.read_csv(folder / "exemplars.csv").query("step == 1")
    first = kept.query("`class` == 0")["position"]
    assert pictures.classes[0][1] == len(first) == 20
    assert pictures.caption.startswith("After step 2, seed 0: 200 exemplars of 10 classes; 8 of")
    first = first.head(10)
    assert [what for what, _ in pictures.classes[0][2]] == [
        f"zero, position {position}" for position in first
    ]
    assert pictures.classes[0][2][0][1].startswith("data:image/png;base64,")


def test_a_picture_keeps_its_shape_and_goes_from_black_to_white(tmp_path):
    values = np.zeros((1, 2, 4))
    values[0, 1, 3], values[0, 0, 0] = 3.0, -1.0
    (tmp_path / "x.png").write_bytes(base64.b64decode(as_address(values).split(",")[1]))
    image = Image.open(tmp_path / "x.png")
    assert (
        image.size == (72, 36)
        and image.getpixel((0, 0)) == (0, 0, 0)
        and image.getpixel((71, 35)) == (255, 255, 255)
    )
    assert image.getpixel((71, 0)) == (64, 64, 64)
    coloured = as_address(Image.new("RGB", (300, 100), (10, 20, 30)))
    (tmp_path / "y.png").write_bytes(base64.b64decode(coloured.split(",")[1]))
    assert Image.open(tmp_path / "y.png").size == (72, 24) and Image.open(
        tmp_path / "y.png"
    ).getpixel((5, 5)) == (10, 20, 30)


def test_a_band_is_one_deviation_around_the_mean_and_a_single_seed_has_none():
    points = pd.DataFrame({"mean": [50.0, 40.0], "std": [10.0, 5.0]})
    axes = draw([Panel("x", [Curve("a", points, 0)])], FOR_PRINT).axes[0]
    heights = axes.collections[0].get_paths()[0].vertices[:, 1]
    assert (heights.min(), heights.max()) == (35.0, 60.0) and axes.lines[
        0
    ].get_ydata().tolist() == [50.0, 40.0]
    assert (
        not draw([Panel("x", [Curve("a", points.assign(std=np.nan), 0)])], FOR_PRINT)
        .axes[0]
        .collections
    )
    assert 'id="n-' in as_svg(draw([Panel("x", [Curve("a", points, 0)])], NARROW), "n", "alt")


@pytest.mark.parametrize("length", [1, 14, 40, 90])
def test_a_legend_has_columns_as_many_as_fit_and_stays_in_the_figure(length):
    points = pd.DataFrame({"mean": [1.0, 2.0], "std": [np.nan, np.nan]}, index=[1, 2])
    curves = [
        Curve(f"{index}" + ("herding-replay " * 7)[1:length], points, index) for index in range(9)
    ]
    figure = draw([Panel("x", curves)], FOR_PRINT)
    figure.draw_without_rendering()
    box, axes = figure.legends[0].get_window_extent(), figure.axes[0].get_tightbbox()
    assert box.x0 >= 0 and box.x1 <= figure.bbox.x1 and box.y0 >= 0 and box.y1 < axes.y0
    columns = len({text.get_window_extent().x0 for text in figure.legends[0].get_texts()})
    assert columns == {1: 9, 14: 5, 40: 2, 90: 1}[length]
