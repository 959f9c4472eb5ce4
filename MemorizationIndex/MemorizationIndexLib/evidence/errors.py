"""What the evidence room refuses."""


class EvidenceError(ValueError):
    """Evidence cannot be gathered; the message is one sentence: what, where, what to do."""
