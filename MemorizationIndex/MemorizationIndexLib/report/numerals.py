"""Numbers as a reader sees them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from .errors import ReportError

DASH = "–"
MINUS = "−"


def decimal(value: float | None, places: int = 2) -> str:
    """Return ``value`` with fixed decimals, a true minus sign, and a dash for None."""
    if value is None:
        return DASH
    _demand_finite(value)
    text = f"{value:.{places}f}"
    if float(text) == 0:
        text = text.lstrip("-")
    return text.replace("-", MINUS)


def significant(value: float | None, digits: int = 3) -> str:
    """Return ``value`` with significant digits; very small or large ones as powers of ten."""
    if value is None:
        return DASH
    _demand_finite(value)
    if value != 0 and not 1e-4 <= abs(value) < 1e6:
        mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
        return f"{mantissa} × 10^{int(exponent)}".replace("-", MINUS)
    return f"{value:.{digits}g}".replace("-", MINUS)


def percent(share: float | None) -> str:
    """Return a share in [0, 1] as per cent; what is neither none nor all never reads as such."""
    if share is None:
        return DASH
    _demand_finite(share)
    if 0 < share < 0.001:
        return "< 0.1 %"
    if 0.999 < share < 1:
        return "> 99.9 %"
    text = f"{100 * share:.1f}"
    return f"{text.removesuffix('.0')} %"


def moment(text: str) -> str:
    """Return an ISO 8601 time of UTC as ``2026-11-30 07:21 UTC``; other text as it is."""
    found = re.fullmatch(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d)(?::[\d.]+)?(?:Z|\+00:00)", text)
    return f"{found[1]} {found[2]} UTC" if found else text


def count(number: int, noun: str, plural: str | None = None) -> str:
    """Return ``3 slices``, ``1 slice``, ``1,200 slices``."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def ranges(indices: Iterable[int]) -> str:
    """Return indices as ``0–3, 7, 9–10``."""
    runs: list[list[int]] = []
    for index in sorted(set(indices)):
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ", ".join(str(a) if a == b else f"{a}–{b}" for a, b in runs)


def _demand_finite(value: float) -> None:
    if not math.isfinite(value):
        raise ReportError(f"the result holds {value}, which is no number that a report can show")
