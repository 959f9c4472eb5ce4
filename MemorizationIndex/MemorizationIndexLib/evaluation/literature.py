"""Published figures that measured ones are put beside (Deo et al. 2026, arXiv 2602.13066)."""

from __future__ import annotations

SOURCE = "Deo et al. 2026, arXiv 2602.13066"

AUC = {
    "exact": (1.000, 1.000),
    "noise_0.01": (1.000, 1.000),
    "noise_0.02": (1.000, 0.999),
    "intensity": (1.000, 1.000),
    "rotation_3": (0.871, 0.805),
    "rotation_5": (0.758, 0.711),
    "horizontal_flip": (0.733, 0.626),
    "vertical_flip": (0.727, 0.635),
}
"""Table 4, mean and smallest AUC by transformation. The flips there were given to half of the
copies only; here every copy is flipped."""

CLEAN_ONI = {"BRATS": 0.700, "Knee": 0.710, "Spine": 0.735, "All": 0.715}
"""Table 3, mean ONI of sets without copies, by dataset."""

LEVELS = (0.05, 0.15, 0.30, 0.45)

SD_OVER_CONDITIONS = {
    "BRATS": {"c_t": (0.32, 0.87, 1.75, 2.73), "index": (0.02, 0.05, 0.09, 0.14)},
    "Spine": {"c_t": (0.18, 0.47, 0.70, 0.85), "index": (0.02, 0.05, 0.10, 0.14)},
    "Knee": {"c_t": (0.14, 0.39, 0.69, 0.92), "index": (0.02, 0.05, 0.09, 0.14)},
}
"""Table 1, standard deviation over the eight conditions, by dataset, measure and level. Not free of
scale: the two measures live on different ones."""

CV_OVER_DATASETS = {
    "c_t": (0.683, 0.441, 0.225, 0.229),
    "index": (0.163, 0.069, 0.035, 0.019),
}
"""Table 2, coefficient of variation over the three datasets, by measure and level."""
