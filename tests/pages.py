"""The pages that people read, and the code in them."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
DOCS = ROOT / "docs"
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
NOTEBOOK = ROOT / "examples" / "hfc_on_digits.ipynb"
PAGES = [README, CONTRIBUTING, *sorted(DOCS.rglob("*.md"))]
FENCE = re.compile(r"^```(\w*)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
GENERATED = re.compile(r"<!-- real-images -->\n.*?<!-- /real-images -->", re.DOTALL)


def name_of(path):
    """A path as the pages write it."""
    return path.relative_to(ROOT).as_posix()


def code_blocks(text, language=None):
    """(title, code) of every fenced block, or of those in one language."""
    return [
        (title, code)
        for found, title, code in FENCE.findall(text)
        if language is None or found == language
    ]


def section(text, heading):
    """What stands below a heading, up to the next one of the same level or a higher one."""
    level = heading.partition(" ")[0]
    parts = text.split(f"\n{heading}\n")
    assert len(parts) == 2, f"{heading!r} stands {len(parts) - 1} times"
    return re.split(rf"\n#{{1,{len(level)}}} ", parts[1])[0]


def tables(text):
    """{heading: cells of the lines below} of every table."""
    found = {}
    for block in re.findall(r"(?:^\|.*\|$\n?)+", text, flags=re.MULTILINE):
        heading, _, *lines = block.strip().splitlines()
        found[heading] = [
            [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines
        ]
    return found


def table(page, start):
    """The lines of a page's table whose heading begins so."""
    found = [
        lines for heading, lines in tables(page.read_text()).items() if heading.startswith(start)
    ]
    assert len(found) == 1, f"{name_of(page)} has {len(found)} tables {start}"
    return found[0]
