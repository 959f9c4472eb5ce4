"""What copied parts are searched in: gathered with the reference, calibrated and written."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from MemorizationIndexLib.cohort.store import CohortWriter
from MemorizationIndexLib.comparison.part_reference import SIDE, part_encoder
from MemorizationIndexLib.comparison.part_windows import WIDTH, WINDOWS, whiten_windows
from MemorizationIndexLib.comparison.parts import (
    KNOWN_PARTS,
    KnownParts,
    calibrate_parts,
    encode_parts,
    part_pictures,
    with_part,
)
from MemorizationIndexLib.encoders.encoder import Encoder
from MemorizationIndexLib.images.volume import Slice
from MemorizationIndexLib.index.protocols import CalibrationError, Protocol

_COPIED_AT_ONCE = 2048


def check_parts(protocol: Protocol) -> None:
    """Refuse to keep parts where their null is unknown.

    Raises:
        CalibrationError: The protocol's null knows no subjects.
    """
    if protocol.null != "subjects":
        raise CalibrationError(
            f"The protocol {protocol.name} knows no error rate for copied parts: leave out "
            "--parts, or use --protocol calibrated."
        )


class PartGatherer:
    """Reduced pictures and built-in features of the slices of a cohort in the making.

    They lie on disk until all slices have been read.
    """

    def __init__(self, writer: CohortWriter, encoder: Encoder, stack: contextlib.ExitStack) -> None:
        """Prepare the files, to be closed with ``stack``; ``encoder`` is the cohort's."""
        self.encoder = part_encoder()
        self.borrowed = encoder.fingerprint == self.encoder.fingerprint
        self.writer = writer
        names = ["pictures"] if self.borrowed else ["pictures", *self.encoder.layers]
        self.paths = {name: writer.folder / "spool" / f"parts.{name}" for name in names}
        self.append = {
            name: stack.enter_context(writer.spool(path)) for name, path in self.paths.items()
        }

    def add(self, slices: Sequence[Slice]) -> None:
        """Take slices, in the order of reading; those without pixels are left out."""
        pixels = [one.pixels for one in slices if one.pixels is not None]
        self.append["pictures"](part_pictures(pixels))
        if not self.borrowed:
            features = encode_parts(pixels, self.encoder)
            for name, layer in zip(self.encoder.layers, features, strict=True):
                self.append[name](layer)

    def write(
        self,
        features: Sequence[NDArray[np.float32]],
        order: NDArray[np.int64],
        subjects: NDArray[np.int64],
        fold_of_subject: NDArray[np.int64],
        kept: tuple[Sequence[int], Sequence[NDArray[np.float32]]],
        seed: int,
        progress: Callable[[int, int], None],
    ) -> None:
        """Whiten, calibrate and write, when all slices were read.

        Args:
            features: Of the cohort's encoder, ordered, one (P, N, D) array per layer.
            order: Place in the order of reading of each row, shape (N,).
            subjects: Subject code of each row, shape (N,).
            fold_of_subject: See ``index.null.subject_folds``.
            kept: Subject codes and pixels of slices from which known copies are made.
            seed: Of the null's slices and of the known copies.
            progress: Called with the number of finished folds and of all folds.
        """
        count = len(order)
        pictures = self._ordered("pictures", "parts.pictures", order, (SIDE, SIDE), np.uint8)
        if self.borrowed:
            own = [layer[0] for layer in features]
        else:
            own = [
                self._ordered(name, f"spool/parts.{name}", order, (width,), np.float32)
                for name, width in zip(self.encoder.layers, self.encoder.widths, strict=True)
            ]
        rows = self.writer.mapped("parts.rows", (len(WINDOWS), count, WIDTH), np.float32)
        windows = whiten_windows(own, rows)
        null, known = calibrate_parts(
            own,
            pictures,
            subjects,
            fold_of_subject,
            self._known_parts(*kept, fold_of_subject, np.random.default_rng([seed, 5])),
            self.encoder,
            np.random.default_rng([seed, 4]),
            progress,
        )
        self.writer.array("parts.null", null)
        self.writer.array("parts.known", known)
        for number, whitener in enumerate(windows.whiteners):
            self.writer.whitener(f"parts.{number}", whitener)
        shrinkage = np.array([whitener.shrinkage for whitener in windows.whiteners])
        self.writer.array("parts.shrinkage", shrinkage)

    def _ordered(
        self, name: str, stored: str, order: NDArray[np.int64], shape: tuple[int, ...], dtype: type
    ) -> NDArray:
        raw = np.memmap(self.paths[name], dtype, "r", shape=(len(order), *shape))
        ordered = self.writer.mapped(stored, raw.shape, dtype)
        for start in range(0, len(order), _COPIED_AT_ONCE):
            part = slice(start, start + _COPIED_AT_ONCE)
            ordered[part] = raw[order[part]]
        del raw
        self.paths[name].unlink()
        return ordered

    def _known_parts(
        self,
        subjects: Sequence[int],
        pixels: Sequence[NDArray[np.float32]],
        fold_of_subject: NDArray[np.int64],
        rng: np.random.Generator,
    ) -> KnownParts:
        folds = fold_of_subject[np.asarray(subjects, np.int64)]
        drawn = rng.integers(len(folds), size=KNOWN_PARTS)
        # All of the kept slices may be of one fold only where all but one of its subjects are
        # without a scorable slice; then nothing is known.
        hosts = [host for host in drawn if (folds != folds[host]).any()]
        pasted = [
            with_part(pixels[host], pixels[rng.choice(np.flatnonzero(folds != folds[host]))], rng)
            for host in hosts
        ]
        return KnownParts(
            encode_parts(pasted, self.encoder),
            part_pictures(pasted),
            np.array([subjects[host] for host in hosts], np.int64),
        )
