"""Small things that the sections do with widgets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import qt

Connection = tuple[Any, str, Callable[..., None]]


def connect(connections: Sequence[Connection]) -> Callable[[], None]:
    """Connect signals to slots.

    Args:
        connections: Sender, signal with its signature, slot.

    Returns:
        A function that undoes it.
    """
    for sender, signal, slot in connections:
        sender.connect(signal, slot)

    def undo() -> None:
        for sender, signal, slot in connections:
            sender.disconnect(signal, slot)

    return undo


def menu_of(button: Any, entries: Sequence[tuple[str, Callable[[], None]]]) -> Any:
    """Give a button a menu of entries, each a text and what it does; keep the menu returned."""
    menu = qt.QMenu(button)
    for text, action in entries:
        menu.addAction(text).triggered.connect(lambda *_, action=action: action())
    button.setMenu(menu)
    return menu


def standard_icon(name: str, side: int) -> Any:
    """Return one of the style's icons (``SP_MessageBoxWarning``…) as a pixmap."""
    icon = qt.QApplication.style().standardIcon(getattr(qt.QStyle, name))
    return icon.pixmap(side, side)
