"""The example of auditing arrays in memory runs as it is printed."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from MemorizationIndexLib.cohort import building
from MemorizationIndexLib.images import volume
from phantom_files import phantom
from shared_data import ROOT


def printed_example() -> str:
    """Return the code that the module's docstring shows."""
    (block,) = re.findall(r"^    .*(?:\n|    .*)*\n", volume.__doc__ or "", re.MULTILINE)
    return textwrap.dedent(block).strip() + "\n"


def test_the_readme_shows_the_same():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    section = readme.partition("Arrays in memory become volumes")[2]
    assert section.partition("```python\n")[2].partition("```")[0] == printed_example()


def test_the_example_finds_a_copied_array(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(building, "CONTROL_SLICES", 4)
    training = {f"patient-{number}": phantom(number, 3) for number in range(6)}
    exec(printed_example(), {"training": training, "synthetic": training["patient-2"][:2].copy()})
    assert "2 of 2 scored slices in 1 volume are copies of 1 reference" in capsys.readouterr().out
