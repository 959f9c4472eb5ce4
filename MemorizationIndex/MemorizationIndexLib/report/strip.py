"""A volume as a strip of cells, one per slice, colored by ONI, lettered by verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..colors import css, oni_color, text_color
from ..results import SliceResult, Verdict
from .numerals import decimal, significant
from .ordering import gravest

MOST_CELLS = 400


@dataclass(frozen=True)
class Cell:
    """One cell of a strip.

    Attributes:
        letter: The verdict's letter.
        verdict: The verdict as a class name, without spaces.
        background: CSS color of the ONI.
        ink: CSS color of the letter.
        label: The cell in words.
    """

    letter: str
    verdict: str
    background: str
    ink: str
    label: str


def strip(slices: Sequence[SliceResult]) -> tuple[list[Cell], int]:
    """Return the cells of one volume and how many slices each stands for.

    Beyond ``MOST_CELLS`` slices a cell stands for several neighbours and shows the gravest.
    """
    group = max(1, -(-len(slices) // MOST_CELLS))
    cells = []
    for start in range(0, len(slices), group):
        members = slices[start : start + group]
        cells.append(_cell(gravest(members), members))
    return cells, group


def _cell(one: SliceResult, members: Sequence[SliceResult]) -> Cell:
    color = oni_color(one.oni)
    label = f"Slice {one.slice}: {one.verdict.value}"
    if one.verdict is Verdict.NOT_SCORED:
        label += f", {one.reason}" if one.reason else ""
    else:
        label += f", ONI {decimal(one.oni)}, p {significant(one.p_value, 2)}"
        if one.nearest_subject is not None and one.verdict is not Verdict.NO_EVIDENCE:
            label += f", nearest {one.nearest_subject}"
            label += f" slice {one.nearest_slice}" if one.nearest_slice is not None else ""
    if len(members) > 1:
        label = f"Slices {members[0].slice}–{members[-1].slice}, gravest: {label}"
    return Cell(
        letter=one.verdict.letter,
        verdict=one.verdict.value.replace(" ", "-"),
        background=css(color),
        ink=css(text_color(color)),
        label=label,
    )
