"""The ten-line example of an encoder of one's own runs as it is printed, from build to score."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from MemorizationIndexLib.cli import main
from MemorizationIndexLib.cohort import building, load_cohort
from MemorizationIndexLib.encoders import external
from MemorizationIndexLib.phantoms import write_phantom_cohort
from shared_data import ROOT

HEADING = "# Your own encoder\n"


def printed_example() -> str:
    """Return the class and the function that the module's docstring shows."""
    blocks = re.findall(r"(?:^(?:    .*)?\n)+", external.__doc__ or "", re.MULTILINE)
    return textwrap.dedent(next(block for block in blocks if "def load" in block)).strip() + "\n"


def test_the_example_is_short():
    assert sum(bool(line.strip()) for line in printed_example().splitlines()) <= 10


def test_the_readme_shows_the_same():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    _, found, section = readme.partition(HEADING)
    if not found:
        pytest.skip("the README has no section of this name")
    assert section.partition("```python\n")[2].partition("```")[0] == printed_example()


def test_the_example_builds_and_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("MEMORIZATION_INDEX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(building, "CONTROL_SLICES", 4)
    monkeypatch.chdir(tmp_path)
    Path("my_encoder.py").write_text(printed_example(), encoding="utf-8")
    write_phantom_cohort(Path("training"), patients=6, slices=3, size=64)
    given = ["training", "--cohort", "c.micohort", "--encoder", "my_encoder.py:load"]
    assert main(["build", *given]) == 0
    facts = load_cohort("c.micohort").facts
    assert facts.encoder == f"{tmp_path / 'my_encoder.py'}:load"
    # From another folder: the cohort remembers where the encoder is.
    monkeypatch.chdir(tmp_path / "training")
    assert main(["score", ".", "--cohort", "../c.micohort", "--out", "../out"]) == 0
    # An encoder that has moved is named, and must be the same.
    moved = (tmp_path / "my_encoder.py").rename(tmp_path / "elsewhere.py")
    again = ["score", ".", "--cohort", "../c.micohort", "--out", "../out"]
    capsys.readouterr()
    assert main(again) == 2
    assert "if your encoder has moved, name it with --encoder" in capsys.readouterr().err
    assert main([*again, "--encoder", f"{moved}:load"]) == 0
    moved.write_text(moved.read_text(encoding="utf-8") + "\n# changed\n", encoding="utf-8")
    assert main([*again, "--encoder", f"{moved}:load"]) == 2
    assert "score with the same encoder" in capsys.readouterr().err
