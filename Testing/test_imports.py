"""What importing costs: nothing of Slicer's, and no deep-learning library."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from shared_data import ROOT

LIBRARY = ROOT / "MemorizationIndex" / "MemorizationIndexLib"
HOST = {"slicer", "qt", "ctk", "vtk"}
HEAVY = {"torch", "torchvision", "scipy.stats", "matplotlib", "SimpleITK"}


def loaded(statement: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{statement}\nprint('\\n'.join(sys.modules))"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "MemorizationIndex")},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "statement",
    [
        "import MemorizationIndexLib",
        "import MemorizationIndexLib.cli",
        "import MemorizationIndexLib.__main__",
        "from MemorizationIndexLib import *",
        "import MemorizationIndexLib as m\n[getattr(m, name) for name in m.__all__]",
        "from MemorizationIndexLib.cli.arguments import parser\nparser()",
        "import MemorizationIndexLib.exchange, MemorizationIndexLib.joining",
    ],
)
def test_importing_pulls_in_neither_slicer_nor_torch(statement):
    assert not loaded(statement) & (HOST | HEAVY)


def imports(path: Path) -> set[str]:
    """Return the top-level modules a file imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            found.add(node.module.partition(".")[0])
    return found


def modules() -> list[Path]:
    return sorted(LIBRARY.rglob("*.py"))


def test_only_scene_and_gui_know_slicer():
    assert len(modules()) > 50
    for path in modules():
        if path.relative_to(LIBRARY).parts[0] not in ("scene", "gui"):
            assert not imports(path) & HOST, path


def test_nothing_pickles():
    for path in modules():
        if path.name == "checkpoint.py":  # names the error of PyTorch's restricted unpickler
            continue
        assert not imports(path) & {"pickle", "dill", "joblib", "shelve", "marshal"}, path
        assert "allow_pickle=True" not in path.read_text(encoding="utf-8"), path


ORDER = (
    *("version", "progress", "locking", "results", "colors", "images", "transformations"),
    *("encoders", "index", "encoding", "comparison", "cohort", "evidence"),
    *("findings", "gallery", "part_search", "verifying", "summary", "audit", "exchange"),
    *("joining", "linkage", "duplicates", "report", "outputs", "duplicates_tables"),
    *("curation", "phantoms", "demo", "evaluation", "memory", "worker", "cli", "scene", "gui"),
)
"""The rooms, from images to what people see; each uses rooms before it, none after it."""


def rooms_used(path: Path) -> set[str]:
    """Return the rooms whose code a file imports, anywhere in it."""
    package = [LIBRARY.name, *path.relative_to(LIBRARY).parts[:-1]]
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ImportFrom):
            continue
        base = package[: len(package) - node.level + 1] if node.level else []
        named = [*base, *(node.module.split(".") if node.module else [])]
        if named[:1] == [LIBRARY.name]:
            found |= {named[1]} if len(named) > 1 else {alias.name for alias in node.names}
    return found


@pytest.mark.parametrize("room", ORDER)
def test_rooms_use_only_rooms_before_them(room):
    at = ORDER.index(room)
    files = [LIBRARY / f"{room}.py", *(LIBRARY / room).rglob("*.py")]
    used = {name for path in files if path.exists() for name in rooms_used(path)}
    assert not used & set(ORDER[at + 1 :])


def test_every_room_has_its_place():
    rooms = {path.stem for path in LIBRARY.glob("*.py")} | {
        path.parent.name for path in LIBRARY.glob("*/__init__.py")
    }
    assert rooms - {"__init__", "__main__"} == set(ORDER)
