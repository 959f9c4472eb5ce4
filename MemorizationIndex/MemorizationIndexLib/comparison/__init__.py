"""Pixels against pixels: two slices laid over each other, as wholes or window by window."""
