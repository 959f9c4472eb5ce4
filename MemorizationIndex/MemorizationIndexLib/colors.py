"""One color for one meaning, in the report and in the scene alike.

Colors are (red, green, blue), 0 to 255. The ONI scale diverges from a strong warm (−1, a copy)
over a neutral (0, typical) to a cool (+1, novel). Red against blue survives the common color
vision deficiencies, and the warm end is the darkest, so that the order also survives grayscale.
"""

from __future__ import annotations

from itertools import pairwise

from .results import Verdict

Color = tuple[int, int, int]

WHITE: Color = (255, 255, 255)
BLACK: Color = (0, 0, 0)

ONI_STOPS: tuple[tuple[float, Color], ...] = (
    (-1.0, (140, 21, 21)),
    (-0.75, (196, 62, 38)),
    (-0.4, (240, 158, 106)),
    (0.0, (243, 241, 236)),
    (0.5, (176, 207, 228)),
    (1.0, (103, 158, 205)),
)

NOT_SCORED_COLOR: Color = (232, 234, 237)

VERDICT_COLORS: dict[Verdict, Color] = {
    Verdict.COPY: (158, 27, 27),
    Verdict.SUSPICIOUS: (176, 84, 0),
    Verdict.NO_EVIDENCE: (42, 92, 140),
    Verdict.NOT_SCORED: (98, 106, 115),
}


def oni_color(oni: float | None) -> Color:
    """Return the color of an ONI in [−1, 1]; beyond is clipped, None is the not-scored gray.

    Raises:
        ValueError: ``oni`` is NaN.
    """
    if oni is None:
        return NOT_SCORED_COLOR
    if oni != oni:
        raise ValueError("an ONI that is not a number has no color; use None for 'not scored'")
    value = min(max(float(oni), -1.0), 1.0)
    for (low, start), (high, end) in pairwise(ONI_STOPS):
        if value <= high:
            share = (value - low) / (high - low)
            red, green, blue = (round(a + share * (b - a)) for a, b in zip(start, end, strict=True))
            return red, green, blue
    return ONI_STOPS[-1][1]


SIMILARITY_FROM = 0.5
"""Local similarity up to which a slice keeps its gray: other people's slices reach it by chance."""

_SIMILARITY_LOW: Color = (255, 221, 110)
_SIMILARITY_HIGH: Color = (190, 20, 30)


def similarity_color(similarity: float) -> Color:
    """Return the color of a local similarity: yellow at ``SIMILARITY_FROM``, red at 1."""
    share = min(max((similarity - SIMILARITY_FROM) / (1 - SIMILARITY_FROM), 0.0), 1.0)
    red, green, blue = (
        round(a + share * (b - a)) for a, b in zip(_SIMILARITY_LOW, _SIMILARITY_HIGH, strict=True)
    )
    return red, green, blue


def relative_luminance(color: Color) -> float:
    """Return the relative luminance in [0, 1] (WCAG 2.2)."""
    red, green, blue = (
        c / 255 / 12.92 if c / 255 <= 0.04045 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in color
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast_ratio(first: Color, second: Color) -> float:
    """Return the contrast ratio in [1, 21] (WCAG 2.2); 4.5 is readable text."""
    light, dark = sorted((relative_luminance(first), relative_luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def text_color(background: Color) -> Color:
    """Return black or white, whichever is easier to read on ``background``; at least 4.5 to 1."""
    return max(BLACK, WHITE, key=lambda color: contrast_ratio(color, background))


def css(color: Color) -> str:
    """Return ``color`` as ``#rrggbb``."""
    return "#{:02x}{:02x}{:02x}".format(*color)
