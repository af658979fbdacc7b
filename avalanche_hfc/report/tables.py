"""Our numbers beside the paper's: one long table of comparisons, and the same as CSV, markdown and
LaTeX.

A number is known by `KEYS`, the columns of the paper's transcription. Values have the paper's
units: percent, FH × 1000.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from avalanche_hfc.store.rows import replace_file

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
DECIMALS = {"parameters_millions": 2}  # 1 elsewhere


def compare(ours: pd.DataFrame, paper: pd.DataFrame) -> pd.DataFrame:
    """`ours`: KEYS, value, a row per seed. `paper`: KEYS, value, mark. Both may have `table`; ours
    with it is compared inside it.

    KEYS, ours, std, num_seeds, paper, gap = ours - paper, mark. Every row of the paper's in its
    order, then what only we have. A number that the paper prints twice counts as first printed and
    says so in its mark.
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


def markdown(table: pd.DataFrame, title: str = "") -> str:
    """Three lines a method (ours, paper, gap), a column per setting, marks as letters that are
    explained below.
    """
    letters = _letters(table)
    headings, lines = _grid(table, letters)
    rows = [["", "", *headings], ["---", "---", *["---:"] * len(headings)], *lines]
    text = "\n".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows
    )
    notes = "\n".join(f"- {letter}: {mark}" for mark, letter in letters.items())
    return (
        "\n\n".join(
            part for part in (f"**{title}**" if title else "", text, _about(table), notes) if part
        )
        + "\n"
    )


def latex(table: pd.DataFrame, title: str = "") -> str:
    """The same for a paper: booktabs, `\\usepackage{booktabs}` is all it needs."""
    letters = _letters(table)
    headings, lines = _grid(table, letters)
    body: list[str] = []
    for row in lines:
        if row[0] and body:
            body.append(r"\addlinespace")
        body.append(" & ".join(_tex(cell) for cell in row) + r" \\")
    head = " & ".join(["", "", *(_tex(heading) for heading in headings)]) + r" \\"
    notes = [f"{_tex(letter)}: {_tex(mark)}." for mark, letter in letters.items()]
    caption = " ".join(part for part in (title and f"{title}.", _about(table)) if part)
    parts = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_tex(caption)}}}",
        rf"\begin{{tabular}}{{ll{'r' * len(headings)}}}",
        r"\toprule",
        head,
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
        *([r"\par\smallskip\footnotesize " + " ".join(notes)] if notes else []),
        r"\end{table}",
    ]
    return "\n".join(parts) + "\n"


def write_tables(table: pd.DataFrame, folder: Path, name: str, title: str = "") -> list[Path]:
    """name.csv, name.md and name.tex; all can be deleted and made again."""
    folder.mkdir(parents=True, exist_ok=True)
    contents = {
        "csv": table.to_csv(index=False),
        "md": markdown(table, title),
        "tex": latex(table, title),
    }
    paths = [folder / f"{name}.{ending}" for ending in contents]
    for path, content in zip(paths, contents.values(), strict=True):
        replace_file(path, content)
    return paths


def _about(table: pd.DataFrame) -> str:
    same = [
        _setting(key, table[key].iloc[0])
        for key in KEYS
        if key not in _varying(table) and key not in ("row", "column")
    ]
    told = ", ".join(text for text in same if text)
    return (
        f"{told + '. ' if told else ''}Ours: mean ± standard deviation over seeds. Gap: ours − "
        "paper."
    )


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


def _letters(table: pd.DataFrame) -> dict[str, str]:
    marks = [mark for mark in dict.fromkeys(table["mark"]) if mark]
    return {mark: _letter(index) for index, mark in enumerate(marks)}


def _letter(index: int) -> str:
    return (_letter(index // 26 - 1) if index >= 26 else "") + chr(ord("a") + index % 26)


def _grid(table: pd.DataFrame, letters: dict[str, str]) -> tuple[list[str], list[list[str]]]:
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
    for names, own in table.groupby(down, sort=False, dropna=False):
        cells = settings.merge(own, on=across, how="left")
        name = ", ".join(
            text
            for text in (_setting(key, value) for key, value in zip(down, names, strict=True))
            if text
        )
        lines += list(_three_lines(name, cells, letters))
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
