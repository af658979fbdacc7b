"""note.json of a checkpoint: where the training stands and the checksums of everything saved with
it. No torch.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from avalanche_hfc._types import Json, Record
from avalanche_hfc.store.rows import row_digest

FORMAT = 1
CHECKSUM = "note_sha256"  # of the other entries
TYPES: Mapping[str, type | tuple[type, ...]] = {
    "bytes": int,
    "sha256": str,
    "step": int,
    "epoch": int,
    "inside": bool,
    "done": (int, float),
    "rows": dict,
    "rows_sha256": dict,
}  # of the entries that a reader uses, where they are there


class Damaged(ValueError):
    """A checkpoint that cannot be used, and why."""


class RowsDamaged(Damaged):
    """A checkpoint that is whole, beside rows that are not those it was saved after."""


def note_text(content: Record) -> str:
    """The note as JSON, with its checksum."""
    whole = {**content, "format": FORMAT}
    return json.dumps({**whole, CHECKSUM: checksum(whole)}, indent=2) + "\n"


def checksum(content: Record) -> str:
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
    for name, expected in TYPES.items():
        if name in note and not isinstance(note[name], expected):
            raise Damaged(f"its note.json has {note[name]!r} for {name}")
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
