"""The files that Slicer must install, read from the tree; ``--write`` puts them into CMake.

``python Testing/cmake_lists.py --write`` after a file of the module was added, renamed or removed.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

MODULE = Path(__file__).resolve().parents[1] / "MemorizationIndex"
LISTS = MODULE / "CMakeLists.txt"
RESOURCE_FOLDERS = ("Resources", "MemorizationIndexLib")


def scripts() -> list[str]:
    """Return the module's Python files below its folder, sorted."""
    return _names(MODULE / "MemorizationIndexLib", lambda path: path.suffix == ".py")


def resources() -> list[str]:
    """Return all other files that the module reads, sorted."""
    return [
        name
        for folder in RESOURCE_FOLDERS
        for name in _names(MODULE / folder, lambda path: path.suffix not in (".py", ".pyc"))
    ]


def listed(variable: str) -> list[str]:
    """Return what a list in CMake names, in its order."""
    match = re.search(rf"set\({variable}\n(.*?)\n  \)", LISTS.read_text(encoding="utf-8"), re.S)
    assert match, f"{LISTS} sets no {variable}"
    lines = [line.strip() for line in match.group(1).splitlines()]
    return [line for line in lines if not line.startswith("${MODULE_NAME}")]


def write() -> None:
    """Bring CMake's lists in line with the tree."""
    text = LISTS.read_text(encoding="utf-8")
    for variable, names, first in (
        ("MODULE_PYTHON_SCRIPTS", scripts(), "  ${MODULE_NAME}.py\n"),
        ("MODULE_PYTHON_RESOURCES", resources(), ""),
    ):
        body = first + "".join(f"  {name}\n" for name in names)
        pattern = rf"(set\({variable}\n).*?(  \))"
        text = re.sub(pattern, lambda m, body=body: m[1] + body + m[2], text, flags=re.S)
    LISTS.write_text(text, encoding="utf-8", newline="\n")


def _names(folder: Path, wanted) -> list[str]:
    return sorted(
        path.relative_to(MODULE).as_posix()
        for path in folder.rglob("*")
        if path.is_file()
        and wanted(path)
        and not any(part == "__pycache__" or part[0] == "." for part in path.parts)
    )


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        write()
    print("\n".join([*scripts(), *resources()]))
