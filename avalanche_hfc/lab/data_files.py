"""data.csv of a run: what identifies your data that it was trained on, file by file.
No torch.
"""

import csv
import io
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from avalanche_hfc.benchmarks.check import check_data
from avalanche_hfc.benchmarks.files import FileRecord, Records, difference, fingerprint
from avalanche_hfc.lab.rows import replace_file
from avalanche_hfc.lab.run_folder import RunFolder

NAME = "data.csv"
log = logging.getLogger(__name__)


def read_records(folder: Path | str) -> dict[str, FileRecord]:
    """The records of a run, by file or array; none where it has none, or they cannot be read.

    Args:
        folder: The run folder.
    """
    try:
        with (Path(folder) / NAME).open(newline="", encoding="utf-8") as file:
            return {
                row["name"]: FileRecord(
                    int(row["size"]),
                    int(row["modified"]),
                    row["sha256"],
                    int(row["width"]),
                    int(row["height"]),
                )
                for row in csv.DictReader(file)
            }
    except (OSError, ValueError, KeyError, TypeError):  # every file is then read again
        return {}


def write_records(folder: Path | str, records: Records) -> None:
    """Replace the records of a run."""
    text = io.StringIO(newline="")
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(("name", *FileRecord._fields))
    rows.writerows((name, *record) for name, record in records.items())
    replace_file(Path(folder) / NAME, text.getvalue())


def data_note(records: Records, left_out: Sequence[str] = ()) -> dict[str, Any]:
    """What recipe.json holds of the data: empty for data that is not the user's."""
    if not records:
        return {}
    return {"sha256": fingerprint(records), "files": len(records), "left_out": list(left_out)}


def refuse_other_data(run_folder: RunFolder, records: Records) -> None:
    """A ValueError that names what differs, unless a run was trained on this data.

    A run of a version that kept no fingerprint is accepted with a warning in the log.

    Args:
        place: The run.
        records: Those of the data, or more: the data of folders learned later.
    """
    held = run_folder.metadata()
    if held is None or not records:
        return
    if "data" not in held:
        log.warning(
            "%s has no fingerprint of its data, so whether the data is the same is not checked.",
            run_folder.path,
        )
        return
    if held["data"]["sha256"] == fingerprint(records):
        return
    before = read_records(run_folder.path)
    if held["data"]["sha256"] != fingerprint(before):
        before = {}
    what = difference(before, records) if before else "data.csv, which names the files, is damaged"
    raise ValueError(
        f"The data is not what {run_folder.path} was trained on ({what}). Restore it, name its "
        "place "
        "with --data, or start another run with --out."
    )


def refuse_other_place(run_folder: RunFolder, data: Path | str, *, skip_bad: bool) -> None:
    """As `refuse_other_data`, of a finished run, where the data is at another place than it was."""
    held = run_folder.metadata() or {}
    before = held.get("recipe", {}).get("own", {}).get("data")
    if "data" in held and before is not None and before != str(data):
        checked = check_data(data, skip_bad=skip_bad)
        checked.raise_if_stopped()
        refuse_other_data(run_folder, checked.records or {})
