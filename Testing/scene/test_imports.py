"""The scene room needs Slicer, VTK and NumPy only, and loads nothing heavy."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

LIBRARY = Path(__file__).resolve().parents[2] / "MemorizationIndex" / "MemorizationIndexLib"
ROOM = LIBRARY / "scene"
ALLOWED = {"slicer", "vtk", "numpy"}
FILES = sorted(ROOM.glob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=[path.name for path in FILES])
def test_a_file_imports_only_slicer_vtk_and_numpy(path):
    outside = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            outside |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            outside.add((node.module or "").partition(".")[0])
    assert outside - set(sys.stdlib_module_names) <= ALLOWED


def test_the_room_loads_without_torch_scipy_simpleitk_and_qt():
    pytest.importorskip("slicer", reason="needs slicer-core from PyPI")
    rooms = "; ".join(
        f"import MemorizationIndexLib.scene.{path.stem}"
        for path in FILES
        if path.stem != "__init__"
    )
    code = (
        f"import sys; sys.path.insert(0, {str(LIBRARY.parent)!r}); {rooms}; "
        "print(sorted({'torch', 'scipy.stats', 'SimpleITK', 'qt', 'PySide6'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
