"""What goes wrong between the library and the scene."""

from __future__ import annotations


class SceneError(ValueError):
    """A node cannot be used; the message is one sentence: what is wrong, where, what to do."""
