"""DICOM files to volumes: series, order, time points, refusals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from images.making import dicom_slice, gray
from MemorizationIndexLib.images import ImageSet, Volume, find_images, read_source, slice_volume


def mr(seed: int) -> np.ndarray:
    return gray(seed).astype(np.int16)


def volumes(found: ImageSet) -> list[Volume]:
    return [volume for source in found.sources for volume in read_source(source)]


def test_slices_are_ordered_by_position_not_by_name(tmp_path: Path) -> None:
    for n, z in enumerate((6.0, 0.0, 9.0, 3.0)):
        dicom_slice(tmp_path / "head" / f"{n}.dcm", mr(int(z)), position=(1, 2, z), instance=n)
    (volume,) = volumes(find_images([tmp_path / "head"]))
    assert (volume.name, volume.subject) == ("head", "P1")
    assert np.array_equal(volume.array, np.stack([mr(0), mr(3), mr(6), mr(9)]))
    assert np.allclose(volume.affine[:3, 2], (0, 0, 3)) and np.allclose(
        volume.affine[:3, 3], (-1, -2, 0)
    )


def test_tilt_and_irregular_spacing_are_tolerated(tmp_path: Path) -> None:
    for n, (y, z) in enumerate(((0, 0), (1, 2), (2, 5), (3, 6))):
        dicom_slice(tmp_path / f"{n}.dcm", mr(n), position=(0, y, z))
    (volume,) = volumes(find_images([tmp_path]))
    assert volume.array.shape[0] == 4 and np.allclose(volume.affine[:3, 2], (0, -1, 2))


def test_series_of_one_folder_are_volumes(tmp_path: Path) -> None:
    for n in range(2):
        dicom_slice(
            tmp_path / "p" / f"a{n}",
            mr(n),
            series="1.1",
            position=(0, 0, n),
            number="3",
            description="T1",
        )
        dicom_slice(
            tmp_path / "p" / f"b{n}",
            mr(n),
            series="1.2",
            position=(0, 0, n),
            number="4",
            description="T2",
        )
        dicom_slice(
            tmp_path / "p" / f"c{n}",
            mr(n),
            series="1.3",
            position=(0, 0, n),
            number="5",
            description="T2",
        )
        dicom_slice(tmp_path / "p" / f"d{n}", mr(n), series="1.4", position=(0, 0, n), number="6")
    found = find_images([tmp_path / "p"])
    assert {s.name for s in found.sources} == {"p T1", "p T2 4", "p T2 5", "p series 6"}
    assert all(len(s.paths) == 2 for s in found.sources)


def test_orientations_and_sizes_of_one_series_are_volumes(tmp_path: Path) -> None:
    for n, orientation in enumerate(("1\\0\\0\\0\\1\\0", "1\\0\\0\\0\\0\\-1", "0\\1\\0\\0\\0\\-1")):
        dicom_slice(tmp_path / f"{n}.dcm", mr(n), orientation=orientation)
    dicom_slice(tmp_path / "big.dcm", gray(9, (30, 30)).astype(np.int16))
    found = find_images([tmp_path])
    assert len(found.sources) == 4 and len({s.name for s in found.sources}) == 4


def test_files_at_one_position_are_time_points(tmp_path: Path) -> None:
    for t in range(2):
        for z in range(3):
            if (t, z) == (1, 2):
                continue
            dicom_slice(
                tmp_path / "d" / f"{t}{z}.dcm",
                mr(10 * t + z),
                position=(0, 0, z),
                temporal=str(t + 1),
                instance=5 - t,
            )
    (source,) = find_images([tmp_path / "d"]).sources
    first, second = read_source(source)
    assert (first.name, second.name) == ("d [t=0]", "d [t=1]")
    assert np.array_equal(first.array, np.stack([mr(0), mr(1), mr(2)]))
    assert np.array_equal(second.array, np.stack([mr(10), mr(11)]))


def test_files_without_a_position_are_a_planar_stack(tmp_path: Path) -> None:
    for n in (2, 0, 1):
        dicom_slice(tmp_path / f"x{9 - n}.dcm", mr(n), position=None, instance=n + 1)
    (source,) = find_images([tmp_path]).sources
    (volume,) = read_source(source)
    assert volume.planar and source.slice_count == 3
    assert np.array_equal(volume.array, np.stack([mr(0), mr(1), mr(2)]))


@pytest.mark.parametrize("name", ["IM0001", "1.2.840.113619.2", "a.dcm", "a.IMA", "scan.xyz"])
def test_recognised_without_extension(tmp_path: Path, name: str) -> None:
    source = dicom_slice(tmp_path / "made.dcm", mr(0))
    (tmp_path / "d").mkdir()
    source.rename(tmp_path / "d" / name)
    assert len(volumes(find_images([tmp_path / "d"]))) == 1
    assert len(volumes(find_images([tmp_path / "d" / name]))) == 1


def test_files_named_one_by_one_are_a_series(tmp_path: Path) -> None:
    files = [dicom_slice(tmp_path / f"{n}.dcm", mr(n), position=(0, 0, n)) for n in range(3)]
    (volume,) = volumes(find_images(files))
    assert volume.array.shape[0] == 3
    assert [s.name for s in find_images(files[:1]).sources] == ["0"]


def test_other_modalities_are_refused_by_series(tmp_path: Path) -> None:
    for n in range(2):
        dicom_slice(tmp_path / f"c{n}.dcm", mr(n), series="1.5", position=(0, 0, n), modality="CT")
        dicom_slice(tmp_path / f"m{n}.dcm", mr(n), series="1.6", position=(0, 0, n))
    found = find_images([tmp_path])
    assert len(found.sources) == 1
    ((where, sentence),) = found.refused
    assert where == str(tmp_path) and "modality CT, not MR" in sentence
    assert "--any-modality" in sentence
    assert len(find_images([tmp_path], any_modality=True).sources) == 2


def test_coloured_series_are_refused(tmp_path: Path) -> None:
    dicom_slice(tmp_path / "a.dcm", gray(0, (24, 20, 3)), photometric="RGB")
    found = find_images([tmp_path], any_modality=True)
    assert not found.sources and "colored" in found.refused[0][1]


def test_truncated_files_are_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = dicom_slice(tmp_path / "a.dcm", mr(0))
    data = path.read_bytes()
    for share in (0.95, 0.7, 0.2):
        path.write_bytes(data[: int(len(data) * share)])
        found = find_images([tmp_path])
        assert not found.sources and str(path) in found.refused[0][1]
    assert capfd.readouterr() == ("", "")


def test_white_for_the_smallest_value(tmp_path: Path) -> None:
    dicom_slice(tmp_path / "a" / "1.dcm", mr(0), photometric="MONOCHROME1")
    dicom_slice(tmp_path / "b" / "1.dcm", 255 - mr(0), series="1.9")
    one, other = (next(slice_volume(v, size=32)) for v in volumes(find_images([tmp_path])))
    assert np.allclose(one.pixels, other.pixels, atol=1e-6)
