"""Stands in for ``slicer.i18n``: no translation is loaded, so every text is its own."""

from __future__ import annotations

from types import ModuleType


def tr(text: str) -> str:
    """Return the text; only literals can be translated, hence no formatting here."""
    return text


def translate(_context: str, text: str) -> str:
    """Return the text of a given context."""
    return text


i18n = ModuleType("slicer.i18n")
i18n.tr = tr  # type: ignore[attr-defined]
i18n.translate = translate  # type: ignore[attr-defined]
