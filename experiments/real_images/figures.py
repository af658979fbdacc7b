"""The figures of the page, from the committed rows."""

from io import BytesIO
from pathlib import Path

import pandas as pd
from matplotlib import rc_context
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from PIL import Image

from avalanche_hfc.lab.options import UPPER_BOUNDS
from avalanche_hfc.lab.read import RunData
from avalanche_hfc.lab.tables import EIGHT, HOSTS, PRACTICAL
from avalanche_hfc.report.figures import (
    FOR_PRINT,
    HEAT,
    TEXT,
    Curve,
    LineKey,
    Panel,
    as_png,
    assign_colours,
    draw,
)
from avalanche_hfc.report.numbers import shared_class_table
from avalanche_hfc.report.table_figures import DEMO_LOOK as LOOK
from avalanche_hfc.report.table_figures import accuracy_points, point
from real_images.claims import difference, over, recipes_of, with_losses
from real_images.rows import MAPPED
from real_images.tables import COMPARISON, NO_LOGITS, PLUG_AND_PLAY, rows_shown

COLORS = 64  # of the palette: a quarter of the file size, no visible difference
NUM_BEST = 8  # curves of the methods with the highest average
OTHER_CURVES = ("hfc", "herding-replay", "ncm")  # drawn whatever their average is
FORMS = ("hfc-paper", "hfc-official")  # of HFC, which has a curve
RIVALS = tuple(  # in the figure of FH
    row for row in (*EIGHT, "herding-replay", *PRACTICAL) if row not in NO_LOGITS
)


def small_png(figure: Figure) -> bytes:
    """A figure as PNG with a palette."""
    file = BytesIO()
    with Image.open(BytesIO(as_png(figure))) as image:
        image.convert("RGB").quantize(COLORS).save(file, "png", optimize=True)
    return file.getvalue()


def accuracy_figure(steps: pd.DataFrame) -> Figure | None:
    """Accuracy after each step of the best methods of the comparison and `OTHER_CURVES`; None
    without any.
    """
    names = {name: row for (row, *_), name in recipes_of(COMPARISON).items()}
    own = rows_shown(COMPARISON, steps)
    if own.empty:
        return None
    own = own.assign(row=own["recipe"].map(names))
    rivals = own[~own["row"].isin((*FORMS, *UPPER_BOUNDS))]
    best = rivals.groupby("row")["accuracy"].mean().nlargest(NUM_BEST).index
    rows = list(dict.fromkeys((*best, *OTHER_CURVES)))
    colours = assign_colours(map(LineKey, rows))
    curves = []
    for row in rows:
        points = accuracy_points(own[own["row"] == row])
        if len(points):
            curves.append(Curve(row, points, colours[LineKey(row)]))
    ticks = [(int(seen), str(seen)) for seen in sorted(own["classes"].unique())]
    title = "Accuracy on all classes seen, %"
    return draw([Panel(title, curves, "classes seen", ticks, limits=(20, 100))], LOOK, height=420)


def class_figure(steps: pd.DataFrame, classes: pd.DataFrame, name: str) -> Figure | None:
    """Accuracy of each class after each step, the mean over seeds; None without rows."""
    runs = [
        RunData(
            path=Path(),
            recipe={},
            seed=int(seed),
            versions={},
            machine="",
            finished=True,
            steps=steps[(steps["recipe"] == name) & (steps["seed"] == seed)],
            classes=own,
        )
        for seed, own in classes[classes["recipe"] == name].groupby("seed")
    ]
    table, _ = shared_class_table(runs)
    return None if table is None else heat_map(table)


def heat_map(table: pd.DataFrame) -> Figure:
    """Fractions as colours, empty where there is none.

    `table` has a row per class in the order of arrival, with the index brought_in, class, name,
    and a column per step.
    """
    columns = [str(step + 1) for step in table.columns]
    names = [str(name) for name in table.index.get_level_values("name")]
    arrivals = table.index.get_level_values("brought_in")
    font = {"font.size": LOOK.font_size, "axes.titlesize": LOOK.font_size}
    with rc_context({**TEXT, **font, "text.color": LOOK.ink}):
        left, width, height = 20 + 7.5 * max(map(len, names)), 60 * len(columns), 22 * len(names)
        size = (left + width + 90, height + 70)
        figure = Figure(figsize=(size[0] / 72, size[1] / 72), dpi=72, facecolor=LOOK.ground)
        axes = figure.add_axes((left / size[0], 50 / size[1], width / size[0], height / size[1]))
        picture = axes.imshow(
            table,
            cmap=ListedColormap(list(HEAT)),
            vmin=0,
            vmax=1,
            aspect="auto",
            interpolation="nearest",
        )
        axes.set_xticks(range(len(columns)), columns)
        axes.set_yticks(range(len(names)), names)
        axes.set_xlabel("after step", color=LOOK.muted)
        axes.tick_params(colors=LOOK.muted, length=0)
        axes.spines[:].set_visible(False)
        for row in range(1, len(names)):
            if arrivals[row] != arrivals[row - 1]:
                axes.axhline(row - 0.5, color=LOOK.ground, linewidth=2)
        beside = figure.add_axes(
            ((left + width + 16) / size[0], 50 / size[1], 12 / size[0], min(height, 240) / size[1])
        )
        bar = figure.colorbar(
            picture, cax=beside, ticks=[0, 0.5, 1], format=lambda value, _: f"{value:.0%}"
        )
        bar.outline.set_visible(False)
    return figure


Points = dict[str, tuple[float, float, float, float]]  # label: x, its error, y, its error


def fh_figure(runs: pd.DataFrame) -> Figure | None:
    """What HFC gains against FH: its lead over a method against the method's FH, and what the
    losses add to a method against how they change its FH. None without rows.
    """
    panels = {
        ("HFC's lead in average", "FH × 1000 of the method"): leads(rows_shown(COMPARISON, runs)),
        ("Average that both losses add", "change of FH × 1000 by them"): gains(
            rows_shown(PLUG_AND_PLAY, runs)
        ),
    }
    panels = {titles: points for titles, points in panels.items() if points}
    if not panels:
        return None
    colours = assign_colours(LineKey(label) for points in panels.values() for label in points)
    figure = draw(
        [
            Panel(
                title,
                [
                    Curve(label, point(x, y), colours[LineKey(label)])
                    for label, (x, _, y, _) in points.items()
                ],
                xlabel,
                limits=whole(points),
            )
            for (title, xlabel), points in panels.items()
        ],
        FOR_PRINT,
        height=380,
    )
    for axes, points in zip(figure.axes, panels.values(), strict=True):
        axes.axhline(0, color=LOOK.muted, linewidth=1, zorder=0)
        for label, (x, wide, y, high) in points.items():
            hue = LOOK.series[colours[LineKey(label)] % len(LOOK.series)]
            axes.errorbar(x, y, yerr=high, xerr=wide, color=hue, linewidth=1, zorder=1)
    return figure


def whole(points: Points) -> tuple[float, float]:
    """Limits of the vertical axis that cut no bar."""
    lowest = min(y - high for _, _, y, high in points.values())
    highest = max(y + high for _, _, y, high in points.values())
    margin = 0.05 * (highest - lowest)
    return lowest - margin, highest + margin


def leads(runs: pd.DataFrame) -> Points:
    """FH of a method, and by how much HFC leads it."""
    fh = runs.groupby("recipe")["fh"]
    means, errors = fh.mean(), fh.sem()
    return {
        pair.label.strip("`"): (means[pair.second], errors[pair.second], lead.mean, lead.error)
        for pair in over(RIVALS, COMPARISON)
        if (lead := difference(runs, pair, "average", COMPARISON.num_seeds)) is not None
    }


def gains(runs: pd.DataFrame) -> Points:
    """By how much both losses change FH and the average of a method."""
    found: Points = {}
    for pair in with_losses(HOSTS):
        fh, average = (
            difference(runs, pair, column, PLUG_AND_PLAY.num_seeds) for column in ("fh", "average")
        )
        if fh is not None and average is not None:
            found[pair.label.strip("`")] = (fh.mean, fh.error, average.mean, average.error)
    return found


def figures(runs: pd.DataFrame, steps: pd.DataFrame, classes: pd.DataFrame) -> dict[str, bytes]:
    """The PNG files that the rows are enough for, by name."""
    drawn = {
        "small-accuracy": accuracy_figure(steps),
        **{
            f"small-classes-{row}": class_figure(steps, classes, name)
            for row, name in MAPPED.items()
        },
        "small-fh": fh_figure(runs),
    }
    return {
        f"{name}.png": small_png(figure) for name, figure in drawn.items() if figure is not None
    }
