"""Beyond the score: registration, verification, runs in a volume, the share of copies in a set."""
