"""Numbers in sentences, read back from the rows they are told of.

A part of a text between `<!-- results: FOLDER -->` and `<!-- /results -->` tells results of
experiments/results/FOLDER/steps.csv (several
folders: with commas between). Every number in it that has a decimal point must be one of the
    numbers below, rounded to the digits shown. A number in backticks or after an equals sign is a
    setting, not a result.

Of which methods: those whose names stand in backticks in the same list item or paragraph; of all
where it names none. Which numbers: over seeds, the mean, standard deviation and standard error of
average, last and forgetting (percent) and FH (× 1000), of each form and of the difference between
two forms on the same seeds (without a sign: its size). One seed's own only where the item says
"seed 0", one step's only where it says "step". Everything is computed here by loops, not by the
package's report.
"""

import csv
import math
import re
from itertools import combinations
from pathlib import Path

BLOCK = re.compile(r"<!-- results: ([\w, -]+?) -->\n(.*?)<!-- /results -->", re.DOTALL)
NUMBER = re.compile(r"(?<![\w.])([+−-]?)(\d+\.\d+)(?![\w]|\.\d)")
SETTINGS = re.compile(
    r"`[^`]*`|<!--.*?-->|\]\([^)]*\)|=\s*[+−-]?\d+(?:\.\d+)?(?:,\s*\d+(?:\.\d+)?)*", re.DOTALL
)


def blocks(text):
    """(folders, text) of every marked part."""
    return [
        ([name.strip() for name in names.split(",")], inside)
        for names, inside in BLOCK.findall(text)
    ]


def items(text):
    """List items and paragraphs."""
    return [item.strip() for item in re.split(r"\n\s*\n|\n(?=\s*- )|^(?=- )", text) if item.strip()]


def numbers(text):
    """(sign, digits) of every number with a decimal point that is not a setting."""
    return [
        (sign.replace("−", "-"), digits) for sign, digits in NUMBER.findall(SETTINGS.sub(" ", text))
    ]


def read_forms(paths):
    """{(folder, method, losses): {seed: {measure: value}}} in percent, FH × 1000; `step 1`, … are
    the accuracies after each step.
    """
    forms = {}
    for path in map(Path, paths):
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                seeds = forms.setdefault(
                    (path.parent.name, row["method"], row.get("losses", "host")), {}
                )
                run = seeds.setdefault(int(row["seed"]), {"steps": {}, "fh": []})
                run["steps"][int(row["step"])] = row
                run["fh"].append(1000 * number_of(row["fh"]))
    return {
        form: {seed: _measures(run) for seed, run in seeds.items()} for form, seeds in forms.items()
    }


def number_of(text):
    """An empty field is a number that does not exist."""
    return float(text or "nan")


def _measures(run):
    last = run["steps"][max(run["steps"])]
    found = {
        f"step {step + 1}": 100 * number_of(row["accuracy"]) for step, row in run["steps"].items()
    }
    found |= {
        "average": 100 * number_of(last["average"]),
        "last": 100 * number_of(last["accuracy"]),
        "fh": sum(run["fh"]) / len(run["fh"]),
    }
    return found | {"forgetting": 100 * number_of(last["forgetting"])}


def spread(values):
    """Mean, standard deviation, standard error; the mean alone of one value."""
    mean = sum(values) / len(values)
    if len(values) == 1:
        return [mean]
    deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))
    return [mean, deviation, deviation / math.sqrt(len(values))]


def tellable(item, forms):
    """(value, its sign) that an item may tell; the sign is None of what is no difference, and
    "both" between two methods: either first.
    """
    named = {
        name
        for name in re.findall(r"`([^`]+)`", item)
        if name in {method for _, method, _ in forms}
    }
    mine = {form: seeds for form, seeds in forms.items() if not named or form[1] in named}
    said = {int(seed) for seed in re.findall(r"\bseed (\d+)", item)}
    measures = {measure for seeds in mine.values() for run in seeds.values() for measure in run}
    for measure in sorted(measures):
        if measure.startswith("step") and not re.search(r"\bsteps?\b", item):
            continue
        columns = {
            form: {seed: run[measure] for seed, run in seeds.items() if measure in run}
            for form, seeds in mine.items()
        }
        shown = [(column, None) for column in columns.values()]
        for one, other in combinations(sorted(columns, key=lambda form: form[2] != "host"), 2):
            sign = (
                "own" if one[:2] == other[:2] else "both"
            )  # what the losses add to a method has one sign
            shown.append(
                (
                    {
                        seed: columns[other][seed] - value
                        for seed, value in columns[one].items()
                        if seed in columns[other]
                    },
                    sign,
                )
            )
        for column, sign in shown:
            values = [value for value in column.values() if not math.isnan(value)]
            yield from ((value, sign) for value in (spread(values) if values else []))
            yield from (
                (value, sign)
                for seed, value in column.items()
                if seed in said and not math.isnan(value)
            )


def untold(text, forms):
    """(number, item) of every number that no row gives."""
    missing = []
    for item in items(text):
        values = list(tellable(item, forms))
        for sign, digits in numbers(item):
            places = len(digits.partition(".")[2])
            signed = {f"{value:+.{places}f}" for value, kind in values if kind}
            signed |= {f"{-value:+.{places}f}" for value, kind in values if kind == "both"}
            plain = {f"{abs(value):.{places}f}" for value, _ in values}
            if (sign + digits not in signed) if sign else (digits not in plain):
                missing.append((sign + digits, item))
    return missing
