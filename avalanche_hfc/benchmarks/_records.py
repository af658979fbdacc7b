"""What identifies your data: a record of each file or array, and one fingerprint of
all. No torch.
"""

import hashlib
from collections.abc import Mapping
from typing import NamedTuple

from avalanche_hfc._names import shortened


class FileRecord(NamedTuple):
    """A file of a folder of images, or an array of an npz file.

    `modified` is the time of a file in nanoseconds and decides only whether it is read again; it is
    no part of the fingerprint. `width` and `height` are those of an image as stored.
    """

    size: int
    modified: int
    sha256: str
    width: int = 0
    height: int = 0


Records = Mapping[str, FileRecord]


def fingerprint(records: Records) -> str:
    """The sha256 over name, size and content of all records, whatever their order.

    Args:
        records: Record by name: the path below the folder, which holds the class, or the array's.

    Example:
        >>> a, b = FileRecord(1, 0, "aa"), FileRecord(2, 0, "bb")
        >>> fingerprint({"x": a, "y": b}) == fingerprint({"y": b, "x": a._replace(modified=9)})
        True
    """
    digest = hashlib.sha256()
    for name in sorted(records):
        digest.update(repr((name, records[name].size, records[name].sha256)).encode())
    return digest.hexdigest()


def difference(before: Records, now: Records) -> str:
    """What is missing, new or changed between two data sets, in words; empty where nothing is.

    Example:
        >>> a, b = FileRecord(1, 0, "aa"), FileRecord(1, 0, "bb")
        >>> difference({"x": a, "y": a}, {"x": b, "z": a})
        'changed: x; missing: y; new: z'
    """
    groups = {
        "changed": [
            name
            for name in before
            if name in now
            and (before[name].size, before[name].sha256) != (now[name].size, now[name].sha256)
        ],
        "missing": [name for name in before if name not in now],
        "new": [name for name in now if name not in before],
    }
    return "; ".join(
        f"{word}: {shortened(sorted(names), 5)}" for word, names in groups.items() if names
    )
