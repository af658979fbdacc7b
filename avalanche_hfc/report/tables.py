"""Our numbers beside the paper's: one long table of comparisons, and the same as CSV, markdown and
LaTeX.

A number is known by `KEYS`, the columns of the paper's transcription. Values have the paper's
units: percent, FH × 1000.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import pandas as pd

from avalanche_hfc.lab import METHODS
from avalanche_hfc.report.numbers import NO_DIFFERENCE, ONE_SEED, TEST, Difference

KEYS = (
    "row",
    "losses",
    "backbone",
    "dataset",
    "base_fraction",
    "num_steps",
    "mem_size",
    "per_class",
    "column",
)
LINE_KEYS = ("row", "losses", "backbone")
NUMBERS = ("base_fraction", "num_steps", "mem_size", "per_class")
NOTHING = "–"
MEASURES = (  # of a line of `measures_grid`, in order
    "average", "last", "Δ average", "Δ last", "average_nme", "last_nme", "forgetting", "fh",
    "seconds",
)  # fmt: skip
DECIMALS = {"parameters_millions": 2}  # 1 elsewhere


def compare(ours: pd.DataFrame, paper: pd.DataFrame) -> pd.DataFrame:
    """Compare our numbers with the paper's.

    A number is identified by the columns `KEYS`, and by `table` if our rows have that column. If
    the paper prints a number twice, the first one is used and its mark says so.

    Args:
        ours: The columns `KEYS` and `value`, with one row per seed.
        paper: The columns `KEYS`, `value` and `mark`.

    Returns:
        The columns `KEYS`, `ours` (mean over seeds), `std`, `num_seeds`, `paper`, `gap` (ours minus
        paper) and `mark`: all rows of the paper in their order, then those that only we have.

    Raises:
        ValueError: If a column is missing.
    """
    keys = [*(["table"] if "table" in ours else []), *KEYS]
    for name, rows, columns in (
        ("ours", ours, [*keys, "value"]),
        ("the paper's rows", paper, [*keys, "value", "mark"]),
    ):
        missing = [column for column in columns if column not in rows]
        if missing:
            raise ValueError(f"compare: {name} have no column {', '.join(missing)}.")
    printed = _printed_once(_typed(paper, keys)[[*keys, "value", "mark"]], keys)
    seeds = _typed(ours, keys).groupby(keys, dropna=False, sort=False)["value"]
    measured = pd.DataFrame(
        {"ours": seeds.mean(), "std": seeds.std(), "num_seeds": seeds.count()}
    ).reset_index()
    both = printed.rename(columns={"value": "paper"}).merge(measured, on=keys, how="left")
    strangers = measured.merge(printed[keys], on=keys, how="left", indicator=True)
    alone = strangers[strangers["_merge"] == "left_only"].drop(columns="_merge")
    table = pd.concat([both, alone], ignore_index=True) if len(alone) else both
    table["num_seeds"] = table["num_seeds"].fillna(0).astype(int)
    table["mark"] = table["mark"].fillna("").astype(str)
    table["gap"] = table["ours"] - table["paper"]
    return table[[*keys, "ours", "std", "num_seeds", "paper", "gap", "mark"]]


def _typed(rows: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Keys of one type each, so that 10, 10.0 and "10" are the same number of steps, and an absent
    one equals an absent one.
    """
    numbers = {name: pd.to_numeric(rows[name]).astype(float) for name in NUMBERS}
    words = {
        name: rows[name].astype(object).where(rows[name].notna(), "").astype(str)
        for name in keys
        if name not in NUMBERS
    }
    return rows.assign(**numbers, **words, value=pd.to_numeric(rows["value"]).astype(float))


def _printed_once(paper: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    first = paper.drop_duplicates(keys).copy()
    others = (
        paper[paper.duplicated(keys)]
        .groupby(keys, dropna=False)["value"]
        .apply(list)
        .rename("others")
        .reset_index()
    )
    first = first.merge(others, on=keys, how="left")
    for index, row in first.iterrows():
        if isinstance(row["others"], list):
            again = [
                f"{value:g}" for value in dict.fromkeys(row["others"]) if value != row["value"]
            ]
            notes = [
                *([str(row["mark"])] if pd.notna(row["mark"]) else []),
                *([f"printed again as {', '.join(again)}"] if again else []),
            ]
            first.loc[index, "mark"] = "; ".join(notes) or None
    return first.drop(columns="others")


def number(value: float, column: str = "", *, signed: bool = False) -> str:
    """As a reader wants it: one decimal, a real minus, a dash where there is none."""
    if pd.isna(value):
        return NOTHING
    text = f"{value:{'+' if signed else ''}.{DECIMALS.get(column, 1)}f}"
    return text.replace("-", "−")


def spread(mean: float, std: float, column: str = "") -> str:
    """mean ± std; the mean alone where one seed has no spread."""
    return number(mean, column) + ("" if pd.isna(std) else f" ± {number(std, column)}")


class Grid(NamedTuple):
    """A table as it is read: headings and lines of texts, the first `num_words` columns words, the
    others numbers. `about` stands below, then the `notes`, as a list where they are marks.
    """

    headings: list[str]
    num_words: int
    lines: list[list[str]]
    about: str
    notes: list[str]
    marks: bool = True


def markdown(grid: Grid, title: str = "") -> str:
    """A grid as markdown."""
    alignment = ["---"] * grid.num_words + ["---:"] * (len(grid.headings) - grid.num_words)
    text = "\n".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |"
        for line in (grid.headings, alignment, *grid.lines)
    )
    notes = "\n".join(f"- {note}" for note in grid.notes) if grid.marks else None
    parts = [f"**{title}**" if title else "", text, grid.about]
    parts += grid.notes if notes is None else [notes]
    return "\n\n".join(part for part in parts if part) + "\n"


def latex(grid: Grid, title: str = "") -> str:
    """A grid for a paper: booktabs, `\\usepackage{booktabs}` is all it needs."""
    body: list[str] = []
    for line in grid.lines:
        if grid.num_words > 1 and line[0] and body:
            body.append(r"\addlinespace")
        body.append(" & ".join(_tex(cell) for cell in line) + r" \\")
    notes = " ".join(_tex(note if note.endswith(".") else f"{note}.") for note in grid.notes)
    caption = " ".join(part for part in (title and f"{title}.", grid.about) if part)
    columns = "l" * grid.num_words + "r" * (len(grid.headings) - grid.num_words)
    parts = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_tex(caption)}}}",
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        " & ".join(_tex(heading) for heading in grid.headings) + r" \\",
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
        *([r"\par\smallskip\footnotesize " + notes] if notes else []),
        r"\end{table}",
    ]
    return "\n".join(parts) + "\n"


def paper_grid(table: pd.DataFrame) -> Grid:
    """Three lines a method (ours, paper, gap), a column per setting, marks as letters that are
    explained below. A table without a number of the paper has one line a method.
    """
    marks = [mark for mark in dict.fromkeys(table["mark"]) if mark]
    letters = {mark: _letter(index) for index, mark in enumerate(marks)}
    headings, lines = _settings_and_lines(table, letters)
    notes = [f"{letter}: {mark}" for mark, letter in letters.items()]
    return Grid(["", "", *headings], 2, lines, _about(table), notes)


def comparison_grid(table: pd.DataFrame) -> Grid:
    """A line per method, in the order of `METHODS`, then those of the user's: as it is, with both
    losses, and what these add, mean ± standard error. Marks say why a method cannot run.
    """
    headings = ["method"]
    cells: list[tuple[str, str]] = []
    for losses, ending in (("host", ""), ("hfc", ", both losses")):
        cells += [(losses, column) for column in ("average", "last")]
        headings += [f"{column}{ending}" for column in ("average", "last")]
    cells += [("host", "Δ average"), ("host", "Δ last")]
    headings += ["Δ average", "Δ last"]
    numbers = {(row["row"], row["losses"], row["column"]): row for _, row in table.iterrows()}
    unable = {row: mark for row, mark in zip(table["row"], table["mark"], strict=True) if mark}
    lines = []
    known = [row for row in METHODS if row in set(table["row"])]
    for row in dict.fromkeys([*known, *table["row"]]):
        texts = [_with_error(numbers.get((row, *cell))) for cell in cells]
        lines.append([f"`{row}`", *(["cannot run", *texts[1:]] if row in unable else texts)])
    seeds = sorted({int(count) for count in table["num_seeds"] if count})
    counted = f"{' or '.join(map(str, seeds))} seed{'' if seeds == [1] else 's'}"
    about = (
        f"Percent, mean ± standard error over {counted}, one thread. Δ: what the losses add, seed "
        f"by seed{_tested(table)} On another kind of CPU single seeds differ by several points."
    )
    notes = [f"`{row}` cannot run. {reason}" for row, reason in unable.items()]
    return Grid(headings, 1, lines, about, notes, marks=False)


def measures_grid(
    table: pd.DataFrame, leader: str = "`hfc`", names: Mapping[str, str] | None = None
) -> Grid:
    """A line per method and setting, a column per measure, mean ± standard error over seeds.
    `leader` names what the columns with Δ compare with; `names` are those of settings in place of
    their own.
    """
    varying = _varying(table)
    keys = [key for key in KEYS if key != "column"]
    settings = [key for key in keys if key in varying and key not in ("row", "losses")]
    columns = sorted(dict.fromkeys(table["column"]), key=_place)
    words = ["method", *(["setting"] if settings else [])]
    lines = []
    for values, rows in table.groupby(keys, sort=False, dropna=False):
        at = dict(zip(keys, values, strict=True))
        name = at["row"] + ("+hfc" if at["losses"] == "hfc" else "")
        numbers = {row["column"]: row for _, row in rows.iterrows()}
        setting = ", ".join(filter(None, (_setting(key, at[key]) for key in settings)))
        setting = (names or {}).get(setting, setting)
        lines.append(
            [
                f"`{name}`",
                *([setting] if settings else []),
                *(_with_error(numbers.get(column)) for column in columns),
            ]
        )
    same = (_setting(key, table[key].iloc[0]) for key in keys if key not in (*settings, "row"))
    alike = ", ".join(filter(None, same if "losses" not in varying else list(same)[1:]))
    about = f"{alike}. {_about_measures(table, leader)}"
    return Grid([*words, *columns], len(words), lines, about, [])


def _about_measures(table: pd.DataFrame, leader: str) -> str:
    """What the columns of `measures_grid` are."""
    seeds = sorted({int(count) for count in table["num_seeds"] if count})
    about = (
        f"Mean ± standard error over {' or '.join(map(str, seeds))} "
        f"seed{'' if seeds == [1] else 's'}: percent, FH × 1000, seconds of training. average and "
        "last are those of the method's own classifier, _nme those of the nearest class mean."
    )
    if table["column"].str.startswith("Δ").any():
        about += f" Δ: by how much {leader} leads, seed by seed{_tested(table)}"
    return about


def _place(column: str) -> int:
    """Where a measure stands among the others: the same in every table, whichever row is first."""
    return MEASURES.index(column) if column in MEASURES else len(MEASURES)


def _tested(table: pd.DataFrame) -> str:
    """How the differences of a table were tested, behind a sentence on them."""
    seeds = table.loc[table["column"].str.startswith("Δ"), "num_seeds"]
    if len(seeds) and (seeds <= 1).all():
        return f". {ONE_SEED}"
    one = f" {ONE_SEED}" if (seeds == 1).any() else ""
    return f", ± its standard error; {NO_DIFFERENCE}: no difference found by {TEST}.{one}"


def _with_error(row: pd.Series | None) -> str:
    if row is None or pd.isna(row["ours"]):
        return NOTHING
    error = row["std"] / math.sqrt(row["num_seeds"])
    is_difference = row["column"].startswith("Δ")
    text = f"{row['ours']:{'+' if is_difference else ''}.1f}"
    text += "" if math.isnan(error) else f" ± {error:.1f}"
    return text + (
        Difference(row["ours"], error, int(row["num_seeds"])).mark if is_difference else ""
    )


def _about(table: pd.DataFrame) -> str:
    same = [
        _setting(key, table[key].iloc[0])
        for key in KEYS
        if key not in _varying(table) and key not in ("row", "column")
    ]
    told = ", ".join(text for text in same if text)
    gap = " Gap: ours − paper." if table["paper"].notna().any() else ""
    return f"{told + '. ' if told else ''}Ours: mean ± standard deviation over seeds.{gap}"


def _varying(table: pd.DataFrame) -> list[str]:
    return [key for key in KEYS if table[key].nunique(dropna=False) > 1]


def _setting(key: str, value: object) -> str:
    if pd.isna(value) or value in ("", "host"):
        return ""
    words = {
        "base_fraction": "B = {:.0%}",
        "num_steps": "T = {:.0f}",
        "mem_size": "M = {:.0f}",
        "per_class": "{:.0f} per class",
    }
    if key == "losses":
        return "with both losses"
    return words.get(key, "{}").format(value)


def _letter(index: int) -> str:
    return (_letter(index // 26 - 1) if index >= 26 else "") + chr(ord("a") + index % 26)


def _settings_and_lines(
    table: pd.DataFrame, letters: dict[str, str]
) -> tuple[list[str], list[list[str]]]:
    """Headings of the settings, and the lines: name, what the line is, a cell per setting."""
    varying = _varying(table)
    across = [key for key in KEYS if key not in LINE_KEYS and (key in varying or key == "column")]
    down = [key for key in LINE_KEYS if key in varying or key == "row"]
    settings = table[across].drop_duplicates()
    headings = [
        ", ".join(text for text in (_setting(key, row[key]) for key in across) if text)
        for _, row in settings.iterrows()
    ]
    lines = []
    for names, rows in table.groupby(down, sort=False, dropna=False):
        cells = settings.merge(rows, on=across, how="left")
        name = ", ".join(
            text
            for text in (_setting(key, value) for key, value in zip(down, names, strict=True))
            if text
        )
        three = list(_three_lines(name, cells, letters))
        lines += three if table["paper"].notna().any() else three[:1]
    return headings, lines


def _three_lines(name: str, cells: pd.DataFrame, letters: dict[str, str]) -> Iterator[list[str]]:
    seeds = sorted(int(count) for count in cells["num_seeds"].dropna().unique() if count)
    told = (
        " – ".join(str(count) for count in dict.fromkeys([seeds[0], seeds[-1]])) if seeds else "0"
    )
    rows = [row for _, row in cells.iterrows()]
    yield [
        name,
        f"ours, {told} seed{'' if told == '1' else 's'}",
        *(spread(row["ours"], row["std"], row["column"]) for row in rows),
    ]
    yield [
        "",
        "paper",
        *(_marked(number(row["paper"], row["column"]), row["mark"], letters) for row in rows),
    ]
    yield ["", "gap", *(number(row["gap"], row["column"], signed=True) for row in rows)]


def _marked(text: str, mark: object, letters: dict[str, str]) -> str:
    return f"{text} ({letters[str(mark)]})" if pd.notna(mark) and mark else text


def _tex(text: str) -> str:
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    special |= {sign: f"\\{sign}" for sign in "&%$#_{}"} | {
        "±": r"$\pm$",
        "−": "$-$",
        "–": "--",
        "×": r"$\times$",
    }
    return "".join(special.get(sign, sign) for sign in text)
