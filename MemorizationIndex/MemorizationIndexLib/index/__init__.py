"""Features to similarity, calibration and verdict: the index itself, on plain arrays."""
