"""What the comparison room refuses."""


class ComparisonError(ValueError):
    """Slices cannot be compared; the message is one sentence: what, where, what to do."""
