"""The error of this room."""


class ReportError(ValueError):
    """A report or table cannot be made; the message says why and what to do."""
