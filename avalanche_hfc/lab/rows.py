"""CSV files that grow by whole rows and survive a kill, and note.json of a checkpoint, which holds
their checksums. No torch.
"""

import csv
import hashlib
import io
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from avalanche_hfc._types import Json, Record


class RowFile:
    """Rows of fixed columns; what is appended is on the disk before the next is. A row cut short by
    a kill is dropped when reopened.

    `count` is the number of rows, `digest` the running sha256 of `row_digest` over them.
    """

    def __init__(self, path: Path, columns: tuple[str, ...]):
        self.path, self.columns = path, columns
        whole = whole_lines(path) or as_csv([columns])
        if not path.exists() or len(whole.encode()) != path.stat().st_size:
            replace_file(path, whole)
        if next(csv.reader(whole.splitlines())) != list(columns):
            raise ValueError(
                f"{path} has other columns than {', '.join(columns)}. Move it away or choose "
                "another folder."
            )
        self._measure()

    def _measure(self) -> None:
        rows = self.rows()
        self.count, self.digest = len(rows), row_digest(rows)

    def rows(self) -> list[dict[str, str]]:
        return read_rows(self.path)

    def extend(self, rows: Iterable[Record]) -> None:
        """Rows that belong together, in one write."""
        lines = self._lines(rows)
        with open(self.path, "a", encoding="utf-8", newline="", opener=no_link) as file:
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())
        added = list(csv.DictReader(io.StringIO(lines, newline=""), self.columns))
        self.count += len(added)
        row_digest(added, self.digest)

    def replace(self, rows: Iterable[Record]) -> None:
        """These rows in the place of all that are there."""
        replace_file(self.path, as_csv([self.columns]) + self._lines(rows))
        self._measure()

    def _lines(self, rows: Iterable[Record]) -> str:
        return as_csv([row[column] for column in self.columns] for row in rows)


def as_csv(rows: Iterable[Iterable[object]]) -> str:
    """Lines of a CSV file."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def no_link(path: str, flags: int) -> int:
    """Opens a file as `open` does, but never what a link leads to."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o644)


def whole_lines(path: Path) -> str:
    """The text of a file up to its last line break: what a kill has cut short is no row. Empty
    without a file.

    Raises:
        ValueError: It is not UTF-8.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return ""
    try:
        return content[: content.rfind(b"\n") + 1].decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is damaged: it is not UTF-8 ({error}).") from None


def read_rows(path: Path) -> list[dict[str, str]]:
    """The whole rows of a CSV file as text; none where there is no file.

    Raises:
        ValueError: It is not UTF-8 or not CSV, or a row has other fields than the header.
    """
    reader = csv.DictReader(io.StringIO(whole_lines(path), newline=""), strict=True)
    try:
        rows: list[dict[str, str]] = list(reader)
    except csv.Error as error:
        raise ValueError(f"{path} is damaged: line {reader.line_num}: {error}.") from None
    for number, row in enumerate(rows, 1):
        if None in row or None in row.values():
            raise ValueError(
                f"{path} is damaged: row {number} has not as many fields as the header."
            )
    return rows


def row_digest(rows: Iterable[Record], running: Any = None) -> Any:
    """A sha256 that changes with any value of any row, but not with an empty column more.

    Args:
        rows: As `read_rows` gives them.
        running: The sha256 of the rows before, which is updated.

    Returns:
        The sha256 object.
    """
    digest = hashlib.sha256() if running is None else running
    for row in rows:
        filled = [(name, value) for name, value in row.items() if value != ""]
        digest.update(json.dumps(filled).encode() + b"\n")
    return digest


def replace_file(path: Path, content: str | bytes) -> None:
    """Write aside, then rename: the file is the old one or the new one, never half of either."""
    aside = path.with_name(path.name + ".new")
    aside.unlink(missing_ok=True)  # left by a kill, or a link to a file of the user's
    with aside.open("xb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(aside, path)


FORMAT = 1
CHECKSUM = "note_sha256"  # of the other entries


class Damaged(ValueError):
    """A checkpoint that cannot be used, and why."""


class RowsDamaged(Damaged):
    """A checkpoint that is whole, beside rows that are not those it was saved after."""


def note_text(content: Record) -> str:
    """The note as JSON, with its checksum."""
    whole = {**content, "format": FORMAT}
    return json.dumps({**whole, CHECKSUM: checksum(whole)}, indent=2) + "\n"


def checksum(content: Any) -> str:
    """The sha256 of plain data, whatever its order and layout as JSON."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def read_note(folder: Path) -> Json:
    """The note of the checkpoint in this folder, if it is what was written.

    Args:
        folder: `last` or `previous` of a run's checkpoints.

    Returns:
        Its entries, without the checksum.

    Raises:
        Damaged: It is missing, no JSON, of another format, or changed after it was written.
    """
    try:
        note = json.loads((folder / "note.json").read_bytes())
    except FileNotFoundError:
        raise Damaged("it has no note.json") from None
    except (ValueError, RecursionError):
        raise Damaged("its note.json is not JSON") from None
    if not isinstance(note, dict) or note.get("format") != FORMAT:
        raise Damaged(f"its note.json is not of format {FORMAT}")
    if note.pop(CHECKSUM, None) != checksum(note):
        raise Damaged("its note.json is not what was written, by its checksum")
    return note


def check_rows(note: Record, name: str, rows: Sequence[Record]) -> None:
    """Refuse a checkpoint unless the first rows of a CSV file are those it was saved after.

    Args:
        note: The note of the checkpoint.
        name: The file, without ending; `rows` are its rows.
        rows: All of them: those behind the checkpoint are not looked at.

    Raises:
        RowsDamaged: Rows are missing, or a value has changed.
    """
    count = note["rows"][name]
    if len(rows) < count:
        raise RowsDamaged(f"rows that it was saved after are missing from {name}.csv")
    if note["rows_sha256"][name] != row_digest(rows[:count]).hexdigest():
        raise RowsDamaged(
            f"the first {count} rows of {name}.csv are not what was written, by their checksum"
        )
