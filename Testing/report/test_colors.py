from __future__ import annotations

import pytest

from MemorizationIndexLib.colors import (
    NOT_SCORED_COLOR,
    VERDICT_COLORS,
    WHITE,
    contrast_ratio,
    css,
    oni_color,
    relative_luminance,
    text_color,
)
from MemorizationIndexLib.results import Verdict

STEPS = [step / 50 - 1 for step in range(101)]


def test_scale_runs_from_warm_over_neutral_to_cool():
    red, _, blue = oni_color(-1.0)
    assert red > 3 * blue
    red, _, blue = oni_color(1.0)
    assert blue > 1.5 * red
    assert max(oni_color(0.0)) - min(oni_color(0.0)) < 12


def test_copies_are_the_darkest_so_that_gray_prints_can_be_read():
    assert min(STEPS, key=lambda oni: relative_luminance(oni_color(oni))) == -1.0
    assert relative_luminance(oni_color(1.0)) > 2.5 * relative_luminance(oni_color(-1.0))


def test_letters_are_readable_on_every_color():
    for oni in STEPS:
        color = oni_color(oni)
        assert contrast_ratio(color, text_color(color)) >= 4.5
    for color in VERDICT_COLORS.values():
        assert contrast_ratio(color, text_color(color)) >= 4.5
        assert contrast_ratio(color, WHITE) >= 4.5


def test_beyond_the_scale_is_clipped_and_none_is_gray():
    assert oni_color(-3.0) == oni_color(-1.0)
    assert oni_color(3.0) == oni_color(1.0)
    assert oni_color(None) == NOT_SCORED_COLOR


def test_nan_has_no_color():
    with pytest.raises(ValueError, match="not a number"):
        oni_color(float("nan"))


def test_every_verdict_has_a_color_of_its_own():
    assert set(VERDICT_COLORS) == set(Verdict)
    assert len(set(VERDICT_COLORS.values())) == len(Verdict)


def test_css_notation():
    assert css((1, 2, 255)) == "#0102ff"
