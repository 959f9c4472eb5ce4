"""What was found among the user's inputs, before any voxel is read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ImageSource:
    """One volume, stack or folder of 2D images to read, with its identity.

    Attributes:
        name: Unique within the set; the name of the volume in every result.
        subject: The person (or generated sample) it comes from.
        rule: How the subject was found, in words (see ``identity.RULES``).
        kind: ``images`` (2D files of one folder), ``pages`` (one multi-page TIFF), ``stack``
            (npy or npz), ``volume`` (NIfTI, NRRD, MetaImage) or ``dicom`` (one series).
        paths: The files, in the order they are read.
        slice_count: Slices to expect, estimated from the headers, for progress.
        input: Which of the user's inputs it was found in, as given.
        labels: For ``images``, the slice label of each path.
        selected: Positions along the slice axis to use; None for all.
        member: For npz, the name of the array.
        timepoints: For ``dicom``, for each time point the positions in ``paths`` of its slices.
        planar: For ``dicom``, True if the series says nothing about its place in space.
    """

    name: str
    subject: str
    rule: str
    kind: str
    paths: tuple[Path, ...]
    slice_count: int
    input: str
    labels: tuple[int, ...] = ()
    selected: tuple[int, ...] | None = None
    member: str = ""
    timepoints: tuple[tuple[int, ...], ...] = ()
    planar: bool = False


@dataclass(frozen=True)
class ImageSet:
    """All that was found, and what was not taken.

    Attributes:
        sources: What can be read, in natural order of inputs and paths.
        refused: Path and one sentence for each file or series that cannot be used.
        subject_rules: Rule to number of subjects identified by it.
        subject_rule_sentence: How many subjects there are and by which rule, for people.
        warnings: Sentences a person should read before trusting the result.
    """

    sources: tuple[ImageSource, ...]
    refused: tuple[tuple[str, str], ...]
    subject_rules: dict[str, int]
    subject_rule_sentence: str
    warnings: tuple[str, ...]
