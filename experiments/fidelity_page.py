"""The tables of docs/fidelity.md, from docs/fidelity.toml and the committed effects on digits.

    python experiments/fidelity_page.py

Nothing is trained. tests/test_fidelity.py compares the file with the code, and the page with what
is written here.
"""

import re
import tomllib
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from itertools import groupby
from pathlib import Path

import pandas as pd
from effects import difference, table

from avalanche_hfc._types import Record
from avalanche_hfc.lab.rows import replace_file

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "fidelity.md"
DATA = ROOT / "docs" / "fidelity.toml"
EFFECTS = ROOT / "experiments" / "results" / "effects" / "steps.csv"
GROUPS = (("hfc",), ("icarl",), ("bic",), ("podnet", "podnet-cscct", "afc"))
GROUPS += (("ssil",), ("foster",), ("dytox",))  # the methods of the paper, as sections
HEADER = "| detail | authors | ours | for theirs | why, and effect |\n|---|---|---|---|---|"


def read() -> Record:
    """docs/fidelity.toml."""
    return tomllib.loads(DATA.read_text())


def quoted(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


# What is followed


def trajectories(held: Record) -> str:
    """A line per recording."""
    lines = [
        "| method | NAME | code that ran | updates | loss | weights |",
        "|---|---|---|---|---|---|",
    ]
    for one in held["trajectory"]:
        code = one["changed"]
        if "repository" in one:
            code = f"{one['repository']} at {one['commit']}: {code}"
        numbers = f"{one['updates']} | {one['loss']:.0e} | {one['weights']:.0e}"
        lines.append(f"| `{one['method']}` | `{one['name']}` | {code} | {numbers} |")
    return "\n".join(lines)


# What departs


def sections(held: Record) -> dict[str, tuple[str, ...]]:
    """Heading -> methods; those that stand in no group come last."""
    grouped = {name for group in GROUPS for name in group}
    others = tuple(one["name"] for one in held["method"] if one["name"] not in grouped)
    groups = {quoted(group): group for group in GROUPS}
    return {"All methods": ("*",), **groups, "Other methods": others}


def departures(held: Record, steps: pd.DataFrame) -> str:
    """A section with a table for each method or group of methods."""
    return "\n\n".join(
        part
        for title, methods in sections(held).items()
        for part in section(title, methods, held, steps)
    )


def section(
    title: str, methods: tuple[str, ...], held: Record, steps: pd.DataFrame
) -> Iterator[str]:
    yield f"### {title}"
    compared = [
        f"`{one['name']}`: {one['code']}" if len(methods) > 1 else one["code"]
        for one in held["method"]
        if one["name"] in methods
    ]
    if compared:
        yield "Compared with " + compared[0] if len(compared) == 1 else "Compared with:"
    if len(compared) > 1:
        yield "\n".join(f"- {line}" for line in compared)
    rows = [row for row in held["departure"] if row["methods"][0] in methods]
    yield "\n".join([HEADER, *(line(row, methods, steps) for row in rows)])


def line(row: Record, methods: tuple[str, ...], steps: pd.DataFrame) -> str:
    of = "" if tuple(row["methods"]) == methods else f" ({quoted(row['methods'])})"
    told = f" {measured(row, steps)}" if variants(row) else f": {row['effect']}"
    cells = (row["detail"] + of, row["authors"], row["ours"], theirs(row))
    return f"| {' | '.join(cells)} | {row['why']}. Effect{told} |"


def theirs(row: Record) -> str:
    """What gives the authors' value, and which recipes have it."""
    if "theirs" not in row:
        return "–"
    option = row.get("give", f"{row['leaf'].split('.')[1]}={row['theirs']}")
    taking = [pattern for pattern, value, _ in row["recipes"] if value == row["theirs"]]
    return f"{quoted(option.split())}; {shown(taking)}"


def shown(patterns: list[str]) -> str:
    """Patterns of recipe names as people write them, without those that another contains."""
    kept = [
        one
        for one in patterns
        if not any(one != other and fnmatch(one, other) for other in patterns)
    ]
    if "*" in kept:
        return "in all recipes"
    told = [one.removeprefix("*").removesuffix("@*").replace("*", "…") for one in kept]
    return f"in {quoted(dict.fromkeys(told))}" if told else "in no recipe"


# Effects

VARIANT = re.compile(r"([\w-]+): ([\w.]+=.*)")


def variants(row: Record) -> list[tuple[str, str]]:
    """(row, changed values) of the effects that a departure names."""
    named = [row["effect"]] if isinstance(row["effect"], str) else row["effect"]
    return [match.groups() for match in map(VARIANT.match, named) if match]  # type: ignore[misc]


def measured(row: Record, steps: pd.DataFrame) -> str:
    """Effects on the last accuracy on digits, of each value that was changed."""
    parts = []
    for values, own in groupby(variants(row), key=lambda variant: variant[1]):
        told = [f"`{name}` {difference(steps, name, values)['accuracy']}" for name, _ in own]
        parts.append(f"of `{values}`: {', '.join(told)}")
    return f"{'; '.join(parts)} ([digits](#effects-on-digits), last)"


def page(text: str, held: Record, steps: pd.DataFrame) -> str:
    """The page with its generated parts anew."""
    parts = {
        "trajectories": trajectories(held),
        "departures": departures(held, steps),
        "effects": table(steps).strip(),
    }
    for name, content in parts.items():
        start, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
        before, rest = text.split(start)
        text = f"{before}{start}{content}\n{end}{rest.split(end)[1]}"
    return text


def main() -> None:
    replace_file(PAGE, page(PAGE.read_text(), read(), pd.read_csv(EFFECTS)))
    print(f"Wrote {PAGE}.")


if __name__ == "__main__":
    main()
