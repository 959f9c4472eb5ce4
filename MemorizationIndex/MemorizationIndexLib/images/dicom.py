"""DICOM files to series: which files make one volume, in which order, and which are refused.

SimpleITK's own series reader takes files by name and drops what does not fit; here files are
grouped by Series Instance UID, matrix and orientation and ordered by their position, as PS3.3
C.7.6.2 defines it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from MemorizationIndexLib.images.itk import itk_name, quiet, ras_affine, simpleitk
from MemorizationIndexLib.images.normalizing import check_pixel_count
from MemorizationIndexLib.images.slicing import count_slices
from MemorizationIndexLib.images.volume import ImageError

SUFFIXES = {".dcm", ".dicom", ".ima"}

_SAME_POSITION = 0.01
_SAME_ORIENTATION = 1e-3

_TAGS = {
    "modality": "0008|0060",
    "patient": "0010|0020",
    "series": "0020|000e",
    "number": "0020|0011",
    "description": "0008|103e",
    "position": "0020|0032",
    "orientation": "0020|0037",
    "photometric": "0028|0004",
    "temporal": "0020|0100",
    "acquisition": "0020|0012",
    "echo": "0018|0081",
    "trigger": "0018|1060",
    "instance": "0020|0013",
}


@dataclass(frozen=True)
class DicomHeader:
    """What one DICOM image file says about itself.

    Attributes:
        path: The file.
        size: Columns, rows, frames.
        components: Values a pixel.
        affine: Index to RAS millimetres, shape (4, 4).
        placed: Whether the file gives a position and an orientation.
        tags: The values of ``_TAGS`` that are present, without padding.
    """

    path: Path
    size: tuple[int, int, int]
    components: int
    affine: NDArray[np.float64]
    placed: bool
    tags: dict[str, str]


@dataclass(frozen=True)
class DicomSeries:
    """The files of one volume, or of several time points of one.

    Attributes:
        paths: Files, in the order of position.
        timepoints: For each time point the positions in ``paths``.
        slice_count: Slices of all time points, cut in the acquisition plane.
        planar: True if the files do not say where they lie.
        patient: PatientID, or empty.
        label: Series description or number, to tell series of one folder apart.
        number: Series number, or empty.
        problem: Empty, or why the series is refused.
    """

    paths: tuple[Path, ...]
    timepoints: tuple[tuple[int, ...], ...]
    slice_count: int
    planar: bool
    patient: str
    label: str
    number: str
    problem: str


def looks_like_dicom(path: Path, *, without_preamble: bool) -> bool:
    """Tell from the first bytes whether a file is DICOM.

    Args:
        path: The file.
        without_preamble: Whether a file that starts with its data set is taken too; so short a
            sign is only to be trusted where the name suits.
    """
    with path.open("rb") as file:
        start = file.read(132)
    if start[128:] == b"DICM":
        return True
    # Such a data set starts with an element of group 0002 or 0008, little endian.
    return (
        without_preamble
        and len(start) == 132
        and start[:2] in (b"\x08\x00", b"\x02\x00")
        and start[3] == 0
    )


def read_dicom_header(path: Path) -> DicomHeader:
    """Read one file's header.

    Raises:
        ImageError: Not a DICOM image, or too large.
    """
    reader = simpleitk().ImageFileReader()
    reader.SetImageIO("GDCMImageIO")
    reader.SetFileName(itk_name(path))
    try:
        with quiet():
            reader.ReadImageInformation()
    except RuntimeError as error:
        raise ImageError(
            f"{path} cannot be read as a DICOM image; it is damaged or holds no pixels."
        ) from error
    tags = {
        name: reader.GetMetaData(tag).strip(" \0")
        for name, tag in _TAGS.items()
        if reader.HasMetaDataKey(tag)
    }
    size = (*reader.GetSize(), 1, 1)[:3]
    check_pixel_count(size[1], size[0], str(path))
    geometry = ras_affine(reader.GetSpacing(), reader.GetOrigin(), reader.GetDirection())
    multiframe = size[2] > 1 and "position" not in tags
    return DicomHeader(
        path,
        (size[0], size[1], size[2]),
        reader.GetNumberOfComponents(),
        geometry,
        # Multi-frame files keep their positions in functional groups, which GDCM has read.
        multiframe or bool(tags.get("position") and tags.get("orientation")),
        tags,
    )


def _number(header: DicomHeader, name: str) -> float:
    try:
        return float(header.tags.get(name, "0"))
    except ValueError:
        return 0.0


def _acquisition_order(header: DicomHeader) -> tuple[float, ...]:
    return tuple(
        _number(header, name) for name in ("temporal", "acquisition", "echo", "trigger", "instance")
    )


def _normal(header: DicomHeader) -> NDArray[np.float64]:
    normal = np.cross(header.affine[:3, 0], header.affine[:3, 1])
    return normal / np.linalg.norm(normal)


def _groups(headers: Sequence[DicomHeader]) -> list[list[DicomHeader]]:
    """Split the files of a folder: one group a series, matrix and orientation."""
    groups: list[list[DicomHeader]] = []
    for header in headers:
        for group in groups:
            first = group[0]
            if (
                header.size[2] == first.size[2] == 1
                and header.size == first.size
                and header.components == first.components
                and header.placed == first.placed
                and header.tags.get("series") == first.tags.get("series")
                and header.tags.get("modality") == first.tags.get("modality")
                and np.allclose(
                    header.affine[:3, :2], first.affine[:3, :2], rtol=0, atol=_SAME_ORIENTATION
                )
            ):
                group.append(header)
                break
        else:
            groups.append([header])
    return groups


def _ordered(group: list[DicomHeader]) -> tuple[list[DicomHeader], list[list[int]]]:
    """Order by position along the normal; files at one position are further time points."""
    if not group[0].placed:
        ordered = sorted(group, key=_acquisition_order)
        return ordered, [list(range(len(ordered)))]
    normal = _normal(group[0])
    place = {header.path: float(header.affine[:3, 3] @ normal) for header in group}
    ordered = sorted(group, key=lambda header: place[header.path])
    positions: list[list[DicomHeader]] = []
    for header in ordered:
        if positions and place[header.path] - place[positions[-1][0].path] < _SAME_POSITION:
            positions[-1].append(header)
        else:
            positions.append([header])
    for files in positions:
        files.sort(key=_acquisition_order)
    ordered = [header for files in positions for header in files]
    starts = np.cumsum([0] + [len(files) for files in positions])
    timepoints = [
        [int(start) + t for start, files in zip(starts, positions, strict=False) if t < len(files)]
        for t in range(max(len(files) for files in positions))
    ]
    return ordered, timepoints


def stack_affine(affines: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Return the affine of slices at these places: the step is their mean, gantry tilt and all."""
    affine = affines[0].copy()
    if len(affines) > 1:
        affine[:3, 2] = (affines[-1][:3, 3] - affines[0][:3, 3]) / (len(affines) - 1)
    return affine


def _count_slices(ordered: list[DicomHeader], timepoints: list[list[int]]) -> int:
    first = ordered[0]
    if not first.placed:
        return sum(header.size[2] for header in ordered)
    count = 0
    for indices in timepoints:
        size = (first.size[0], first.size[1], sum(ordered[index].size[2] for index in indices))
        affine = stack_affine([ordered[index].affine for index in indices])
        try:
            count += count_slices(size, affine)
        except ImageError as error:
            raise ImageError(f"{first.path}: {error}.") from error
    return count


def group_series(headers: Sequence[DicomHeader], *, any_modality: bool) -> list[DicomSeries]:
    """Group the files of one folder into series, each with its order or the reason against it."""
    found = []
    for group in _groups(headers):
        ordered, timepoints = _ordered(group)
        first = ordered[0]
        modality = first.tags.get("modality", "")
        problem, count = "", 0
        where = f"{first.path}" if len(group) == 1 else f"{first.path.parent}"
        if first.components > 1 or first.tags.get("photometric", "").startswith(("RGB", "YBR")):
            problem = f"{where} holds a colored DICOM series; only gray images can be scored."
        elif modality != "MR" and not any_modality:
            problem = (
                f"{where} holds a DICOM series of modality {modality or 'unknown'}, not MR; "
                "use --any-modality to take it all the same."
            )
        else:
            try:
                count = _count_slices(ordered, timepoints)
            except ImageError as error:
                problem = str(error)
        found.append(
            DicomSeries(
                tuple(header.path for header in ordered),
                tuple(tuple(indices) for indices in timepoints),
                count,
                not first.placed,
                first.tags.get("patient", ""),
                first.tags.get("description", "") or f"series {first.tags.get('number', '?')}",
                first.tags.get("number", ""),
                problem,
            )
        )
    return found


def read_timepoint(
    paths: Sequence[Path], *, planar: bool
) -> tuple[NDArray[np.generic], NDArray[np.float64]]:
    """Read the files of one time point.

    Args:
        paths: In the order of position; or one multi-frame file.
        planar: Whether the files say where they lie (then the affine is the identity).

    Returns:
        Voxels, shape (K, J, I); index-to-RAS affine, shape (4, 4).

    Raises:
        ImageError: A file cannot be decoded.
    """
    itk = simpleitk()
    arrays, affines = [], []
    for path in paths:
        reader = itk.ImageFileReader()
        reader.SetImageIO("GDCMImageIO")
        reader.SetFileName(itk_name(path))
        try:
            with quiet():
                image = reader.Execute()
        except (RuntimeError, MemoryError) as error:
            raise ImageError(
                f"The pixels of {path} cannot be decoded; the file is damaged or in a transfer "
                "syntax that GDCM does not know."
            ) from error
        array = itk.GetArrayFromImage(image)
        array = array.reshape(-1, *array.shape[-2:])
        arrays.append(array)
        affines.append(ras_affine(image.GetSpacing(), image.GetOrigin(), image.GetDirection()))
    voxels = arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
    return voxels, np.eye(4) if planar else stack_affine(affines)
