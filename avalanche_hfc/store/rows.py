"""CSV files that grow by whole rows and survive a kill."""

import csv
import io
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from avalanche_hfc._types import Record

RUN_COLUMNS = (
    "method",
    "seed",
    "step",
    "classes",
    "images",
    "accuracy",
    "average",
    "forgetting",
    "fh",
    "seconds",
)  # a row per step
METHOD_COLUMNS = (
    "method",
    "losses",
    "seed",
    "step",
    "classes",
    "images",
    "accuracy",
    "accuracy_nme",
    "average",
    "forgetting",
    "fh",
    "seconds",
)


class RowFile:
    """Rows of fixed columns; what is appended is on the disk before the next is. A row cut short by
    a kill is dropped when reopened.
    """

    def __init__(self, path: Path, columns: tuple[str, ...]):
        self.path, self.columns = path, columns
        text = path.read_text() if path.exists() else ""
        whole = text[: text.rfind("\n") + 1] or self._line(columns)
        if whole != text:
            replace_file(path, whole)
        if next(csv.reader(io.StringIO(whole)), None) != list(columns):
            raise ValueError(
                f"{path} has other columns than {', '.join(columns)}. Move it away or choose "
                "another folder."
            )

    def rows(self) -> list[dict[str, str]]:
        with self.path.open(newline="") as file:
            return list(csv.DictReader(file))

    def append(self, row: Record) -> None:
        self.extend([row])

    def extend(self, rows: Iterable[Record]) -> None:
        """Rows that belong together, in one write."""
        lines = self._lines(rows)
        with self.path.open("a") as file:
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())

    def replace(self, rows: Iterable[Record]) -> None:
        """These rows in the place of all that are there."""
        replace_file(self.path, self._line(self.columns) + self._lines(rows))

    def _lines(self, rows: Iterable[Record]) -> str:
        return "".join(self._line([row[column] for column in self.columns]) for row in rows)

    @staticmethod
    def _line(values: Any) -> str:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerow(values)
        return text.getvalue()


def replace_file(path: Path, content: str | bytes) -> None:
    """Write aside, then rename: the file is the old one or the new one, never half of either."""
    aside = path.with_name(path.name + ".new")
    with aside.open("wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(aside, path)
