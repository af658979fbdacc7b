"""CSV files that grow by whole rows and survive a kill."""

import csv
import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class RowFile:
    """Rows of fixed columns, appended one by one, each on the disk before the next. A row cut short by a kill is dropped when reopened."""

    def __init__(self, path: Path, columns: tuple[str, ...]):
        self.path, self.columns = path, columns
        if not path.exists():
            path.write_text(self._line(columns))
        text = path.read_text()
        if not text.endswith("\n"):
            text = text[: text.rfind("\n") + 1]
            path.write_text(text)
        if next(csv.reader(io.StringIO(text)), None) != list(columns):
            raise ValueError(f"{path} has other columns than {', '.join(columns)}. Move it away or choose another folder.")

    def rows(self) -> list[dict[str, str]]:
        with self.path.open(newline="") as file:
            return list(csv.DictReader(file))

    def append(self, row: Mapping[str, Any]) -> None:
        line = self._line([row[column] for column in self.columns])
        with self.path.open("a") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())

    @staticmethod
    def _line(values: Any) -> str:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerow(values)
        return text.getvalue()


def replace_file(path: Path, content: str | bytes) -> None:
    """Write aside, then rename: the file is the old one or the new one, never half of either."""
    aside = path.with_name(path.name + ".new")
    aside.write_bytes(content.encode() if isinstance(content, str) else content)
    os.replace(aside, path)
