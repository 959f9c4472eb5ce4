"""The user's table of images: ``path, subject_id[, slice_index]``."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path

from MemorizationIndexLib.images.volume import ImageError

NAME = "manifest.csv"


class MissingColumnsError(ImageError):
    """The table has no ``path`` or no ``subject_id`` column."""


@dataclass(frozen=True)
class ManifestRow:
    """One line of a manifest.

    Attributes:
        line: Line number in the file, from 1.
        path: The file or folder it names, as it can be opened.
        subject: Its ``subject_id``.
        slice_index: Its ``slice_index``, or None.
    """

    line: int
    path: Path
    subject: str
    slice_index: int | None


@dataclass(frozen=True)
class Manifest:
    """A manifest whose paths have been looked up.

    Attributes:
        file: The table itself.
        rows: Lines whose file or folder exists.
        missing: Line number and path, as written, of the others.
    """

    file: Path
    rows: tuple[ManifestRow, ...]
    missing: tuple[tuple[int, str], ...]

    def by_path(self) -> dict[Path, list[ManifestRow]]:
        """Return the rows of each resolved file or folder."""
        rows: dict[Path, list[ManifestRow]] = {}
        for row in self.rows:
            rows.setdefault(row.path.resolve(), []).append(row)
        return rows


def _locate(text: str, folder: Path) -> Path | None:
    # Tables written on Windows separate folders by backslashes.
    for written in dict.fromkeys((text, text.replace("\\", "/"))):
        for base in (folder, folder.resolve().parent):
            candidate = base / written
            try:
                if candidate.exists():
                    return candidate
            except OSError:
                continue
    return None


def _slice_index(text: str, where: str) -> int | None:
    if not text:
        return None
    try:
        number = float(text)
        if not number.is_integer():
            raise ValueError
    except (ValueError, OverflowError):
        raise ImageError(f"{where}: slice_index {text!r} is not a whole number.") from None
    return int(number)


def load_manifest(file: Path) -> Manifest:
    """Read a manifest; paths are absolute, or relative to its folder or that folder's parent.

    Raises:
        MissingColumnsError: No ``path`` or ``subject_id`` column.
        ImageError: Not a UTF-8 table, an empty field, or a slice_index that is no whole number.
    """
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ImageError(f"{file} is not UTF-8 text; save it as CSV in UTF-8.") from error
    except OSError as error:
        raise ImageError(f"{file} cannot be read: {error.strerror}.") from error
    heading = text.partition("\n")[0]
    delimiter = max(",;\t", key=heading.count)
    try:
        table = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))
    except csv.Error as error:
        raise ImageError(f"{file} cannot be read as a table: {error}.") from error
    columns = [column.strip().lower() for column in table[0]] if table else []
    lacking = [name for name in ("path", "subject_id") if name not in columns]
    if lacking:
        raise MissingColumnsError(
            f"{file} has no column {' and no column '.join(lacking)}; a manifest needs the "
            "columns path and subject_id, and may have slice_index."
        )
    rows, missing = [], []
    for line, cells in enumerate(table[1:], start=2):
        if not any(cell.strip() for cell in cells):
            continue
        values = dict(zip(columns, (cell.strip() for cell in cells), strict=False))
        where = f"{file}, line {line}"
        for name in ("path", "subject_id"):
            if not values.get(name):
                raise ImageError(f"{where}: {name} is empty.")
        slice_index = _slice_index(values.get("slice_index", ""), where)
        located = _locate(values["path"], file.parent)
        if located is None:
            missing.append((line, values["path"]))
        else:
            rows.append(ManifestRow(line, located, values["subject_id"], slice_index))
    if not rows and not missing:
        raise ImageError(f"{file} lists no image.")
    return Manifest(file, tuple(rows), tuple(missing))
