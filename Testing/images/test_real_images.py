"""Every shared image is read or refused with one sentence; none is called blank wrongly."""

from __future__ import annotations

import numpy as np
import pytest

from MemorizationIndexLib.images import Slice, find_images, read_source, slice_volume
from MemorizationIndexLib.images.source import ImageSource
from shared_data import shared


def slices(source: ImageSource, size: int = 64) -> list[Slice]:
    return [one for volume in read_source(source) for one in slice_volume(volume, size=size)]


def test_volumes() -> None:
    found = find_images([shared("data", "volumes")])
    assert len(found.sources) == 7 and not found.refused and not found.warnings
    reasons = {}
    for source in found.sources:
        cut = slices(source)
        assert len(cut) == source.slice_count
        reasons |= {(one.volume, one.index): one.reason for one in cut if one.reason}
    # Its gray values end at 12 of 255: the air above the head.
    assert list(reasons) == [("derived_brain_TCGA_CS_4941_flair", 22)]


def test_dicom() -> None:
    found = find_images([shared("data", "dicom")])
    assert found.subject_rules == {"DICOM PatientID": 3}
    assert "no column subject_id" in found.warnings[0]
    sentences = [sentence for _, sentence in found.refused]
    assert len(sentences) == 2 and "colored" in sentences[0] and "CT, not MR" in sentences[1]
    counts = {source.name: len(slices(source)) for source in found.sources}
    assert counts == {source.name: source.slice_count for source in found.sources}
    assert sorted(counts.values()) == [4, 4, 6, 8, 16]
    assert not any(one.reason for source in found.sources for one in slices(source))


def test_six_transfer_syntaxes_are_one_slice() -> None:
    (source,) = find_images([shared("data", "dicom", "pydicom_mr_small_syntaxes")]).sources
    cut = slices(source)
    assert len(cut) == 6 and len({one.volume for one in cut}) == 6
    assert all(np.array_equal(one.pixels, cut[0].pixels) for one in cut)


def test_compressed_series_are_equal() -> None:
    j2k, rle = (
        slices(find_images([shared("data", "dicom", name)]).sources[0])
        for name in ("d2n_compressed_j2k", "d2n_compressed_rle")
    )
    assert all(np.array_equal(a.pixels, b.pixels) for a, b in zip(j2k, rle, strict=True))


def test_enhanced_multiframe_equals_its_conversion() -> None:
    """The same voxels through DICOM and through NIfTI, stored with another handedness."""
    (dicom,) = find_images([shared("data", "dicom", "d2n_siemens_multiframe")]).sources
    (nifti,) = find_images([shared("data", "volumes", "d2n_siemens_multiframe.nii.gz")]).sources
    one, other = slices(dicom), slices(nifti)
    assert len(one) == len(other) == 8
    assert all(np.array_equal(a.pixels, b.pixels) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize(("anatomy", "subjects"), [("brain", 55), ("knee", 55), ("spine", 38)])
def test_slices(anatomy: str, subjects: int) -> None:
    found = find_images([shared("data", "slices", anatomy)])
    assert found.subject_rule_sentence == f"{subjects} subjects, identified by their parent folder"
    assert not found.refused and not found.warnings
    for source in found.sources:
        assert not any(one.reason for one in slices(source))


def test_slices_by_manifest() -> None:
    found = find_images([shared("data", "slices")])
    assert found.subject_rules == {"the manifest": 148}
    by_name = {source.name: source for source in found.sources}
    assert by_name["brain-DU-8166"].labels[:3] == (12, 13, 14)
    again = find_images([shared("data", "slices", "manifest.csv")])
    assert {s.name: s.labels for s in again.sources} == {n: s.labels for n, s in by_name.items()}
