from __future__ import annotations

import pytest

from MemorizationIndexLib.report import ReportError
from MemorizationIndexLib.report.numerals import (
    count,
    decimal,
    moment,
    percent,
    ranges,
    significant,
)


def test_decimal():
    assert decimal(-1.239) == "−1.24"
    assert decimal(-0.0001) == "0.00"
    assert decimal(None) == "–"


def test_significant():
    assert significant(0.0012345) == "0.00123"
    assert significant(1e-7, 2) == "1.0 × 10^−7"
    assert significant(0.0) == "0"
    assert significant(None) == "–"


def test_percent_never_rounds_to_none_or_all():
    assert percent(0.0) == "0 %"
    assert percent(0.0004) == "< 0.1 %"
    assert percent(0.9996) == "> 99.9 %"
    assert percent(1.0) == "100 %"
    assert percent(0.123) == "12.3 %"


def test_count():
    assert count(1, "slice") == "1 slice"
    assert count(1200, "slice") == "1,200 slices"
    assert count(2, "known copy", "known copies") == "2 known copies"


def test_moment():
    assert moment("2026-11-30T07:21:05Z") == "2026-11-30 07:21 UTC"
    assert moment("2026-11-30T07:21:05+00:00") == "2026-11-30 07:21 UTC"
    assert moment("2026-11-30T07:21:05+02:00") == "2026-11-30T07:21:05+02:00"
    assert moment("unknown") == "unknown"


def test_ranges():
    assert ranges([3, 0, 1, 2, 7, 9, 10]) == "0–3, 7, 9–10"
    assert ranges([]) == ""


@pytest.mark.parametrize("show", [decimal, significant, percent])
def test_nan_is_never_shown(show):
    with pytest.raises(ReportError):
        show(float("nan"))
