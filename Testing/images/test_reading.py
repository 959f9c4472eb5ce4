"""Voxels and geometry of every format, and the sentence for every file that has none."""

from __future__ import annotations

import gzip
import io
import os
import struct
import threading
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk  # noqa: N813
from PIL import Image

from images.making import gray, nifti, png
from MemorizationIndexLib.images import ImageError, Volume, find_images, read_source, slice_volume
from MemorizationIndexLib.images.stacks import stack_shape


def read(path: Path) -> list[Volume]:
    found = find_images([path])
    if found.refused:
        raise ImageError(found.refused[0][1])
    return [volume for source in found.sources for volume in read_source(source)]


@pytest.mark.parametrize("suffix", [".nii", ".nii.gz", ".nrrd", ".mha", ".mhd", ".nhdr"])
def test_volume_formats(tmp_path: Path, suffix: str) -> None:
    image = sitk.GetImageFromArray(gray(1, (18, 20, 22)).astype(np.int16))
    image.SetSpacing((1.0, 1.5, 2.0))
    image.SetOrigin((3.0, 4.0, 5.0))
    image.SetDirection((0, 1, 0, -1, 0, 0, 0, 0, 1))
    sitk.WriteImage(image, str(tmp_path / f"v{suffix}"))
    (volume,) = read(tmp_path)
    assert volume.name == "v" and not volume.planar
    assert np.array_equal(volume.array, gray(1, (18, 20, 22)))
    lps = np.array(image.TransformIndexToPhysicalPoint((2, 5, 7)))
    assert np.allclose(volume.affine @ (2, 5, 7, 1), [*(lps * (-1, -1, 1)), 1], atol=1e-4)


@pytest.mark.parametrize("suffix", [".nii", ".nii.gz", ".nrrd", ".mha"])
def test_every_time_point(tmp_path: Path, suffix: str) -> None:
    nifti(tmp_path / f"v{suffix}", shape=(3, 16, 20, 22))
    (source,) = find_images([tmp_path]).sources
    volumes = list(read_source(source))
    assert [volume.name for volume in volumes] == ["v [t=0]", "v [t=1]", "v [t=2]"]
    for t, volume in enumerate(volumes):
        assert np.array_equal(volume.array, gray(0, (3, 16, 20, 22))[t])
    assert source.slice_count == sum(len(list(slice_volume(v, size=32))) for v in volumes)


def test_2d_volume_file(tmp_path: Path) -> None:
    nifti(tmp_path / "v.nii", shape=(30, 20))
    (volume,) = read(tmp_path)
    assert volume.array.shape == (1, 30, 20)
    assert len(list(slice_volume(volume))) == 1


def with_sform(path: Path, rows: list[list[float]]) -> None:
    data = bytearray(nifti(path).read_bytes())
    struct.pack_into("<hh", data, 252, 0, 1)
    for offset, row in zip((280, 296, 312), rows, strict=True):
        struct.pack_into("<4f", data, offset, *row)
    path.write_bytes(data)


def test_sheared_nifti_keeps_its_sform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ITK_NIFTI_SFORM_PERMISSIVE", raising=False)
    rows = [[1, 0.3, 0, 5], [0, 1, 0, 6], [0, 0.2, 2, 7]]
    with_sform(tmp_path / "v.nii", rows)
    (volume,) = read(tmp_path / "v.nii")
    assert np.allclose(volume.affine[:3], rows, atol=1e-6)
    assert np.array_equal(volume.array, gray(0, (18, 20, 22)))
    assert "ITK_NIFTI_SFORM_PERMISSIVE" not in os.environ


def test_singular_sform_is_one_sentence(tmp_path: Path) -> None:
    with_sform(tmp_path / "v.nii", [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0]])
    with pytest.raises(ImageError, match="direction matrix") as error:
        [list(slice_volume(volume)) for volume in read(tmp_path / "v.nii")]
    assert str(tmp_path / "v.nii") in str(error.value)


@pytest.mark.parametrize("suffix", [".nii", ".nii.gz", ".nrrd", ".mha"])
@pytest.mark.parametrize("share", [0.1, 0.6, 0.99])
def test_truncated_volumes(
    tmp_path: Path, suffix: str, share: float, capfd: pytest.CaptureFixture[str]
) -> None:
    path = nifti(tmp_path / f"v{suffix}")
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(ImageError) as error:
        read(path)
    assert str(path) in str(error.value) and "\n" not in str(error.value)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("suffix", [".nii.gz", ".nrrd", ".mha", ".mhd"])
@pytest.mark.parametrize("place", [0.4, 0.9])
@pytest.mark.parametrize("damage", ["flip", "cut"])
def test_damaged_compression(
    tmp_path: Path, suffix: str, place: float, damage: str, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"v{suffix}"
    sitk.WriteImage(sitk.GetImageFromArray(gray(0, (30, 40, 40))), str(path), True)
    assert np.array_equal(read(path)[0].array, gray(0, (30, 40, 40)))
    voxels = path.with_suffix(".zraw") if suffix == ".mhd" else path
    data = bytearray(voxels.read_bytes())
    position = int(len(data) * place)
    data[position] ^= 0x55
    voxels.write_bytes(data if damage == "flip" else data[:position])
    with pytest.raises(ImageError, match=r"damaged|truncated"):
        read(path)
    assert capfd.readouterr() == ("", "")


def test_gzip_of_several_members_is_whole(tmp_path: Path) -> None:
    data = nifti(tmp_path / "v.nii").read_bytes()
    parts = gzip.compress(data[:5000]) + gzip.compress(data[5000:])
    (tmp_path / "w.nii.gz").write_bytes(parts)
    (volume,) = read(tmp_path / "w.nii.gz")
    assert np.array_equal(volume.array, gray(0, (18, 20, 22)))
    (tmp_path / "w.nii.gz").write_bytes(parts[:-3000])
    with pytest.raises(ImageError, match="truncated"):
        read(tmp_path / "w.nii.gz")


@pytest.mark.parametrize("suffix", [".nii", ".nrrd", ".mha"])
def test_components_and_complex_are_refused(tmp_path: Path, suffix: str) -> None:
    vector = sitk.GetImageFromArray(np.zeros((18, 20, 22, 3), np.float32), isVector=True)
    sitk.WriteImage(vector, str(tmp_path / f"v{suffix}"))
    with pytest.raises(ImageError, match="3 components"):
        read(tmp_path / f"v{suffix}")
    if suffix == ".nii":
        sitk.WriteImage(sitk.Image(20, 20, 20, sitk.sitkComplexFloat32), str(tmp_path / "c.nii"))
        with pytest.raises(ImageError, match="complex"):
            read(tmp_path / "c.nii")


def test_a_huge_volume_is_refused_from_its_header(tmp_path: Path) -> None:
    data = bytearray(nifti(tmp_path / "v.nii").read_bytes())
    struct.pack_into("<4h", data, 40, 3, 20_000, 20_000, 1)
    (tmp_path / "v.nii").write_bytes(data)
    with pytest.raises(ImageError, match="20000 × 20000 pixels"):
        read(tmp_path / "v.nii")


def test_silence_ends_whatever_the_threads_do() -> None:
    from MemorizationIndexLib.images.itk import quiet

    before = os.fstat(2)
    ready, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with quiet():
            ready.set()
            leave.wait(10)

    thread = threading.Thread(target=hold)
    with quiet():
        thread.start()
        ready.wait(10)
        assert os.fstat(2) != before
    assert os.fstat(2) != before
    leave.set()
    thread.join()
    assert os.fstat(2) == before


# Pictures


@pytest.mark.parametrize(
    ("mode", "suffix"),
    [
        *((mode, ".png") for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")),
        *((mode, ".tif") for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16", "I", "F")),
    ],
)
def test_grey_pictures(tmp_path: Path, mode: str, suffix: str) -> None:
    values = gray(2)
    if mode == "1":
        picture, values = Image.fromarray(values > 127), values > 127
    elif mode == "I;16":
        values = values.astype(np.uint16) * 200
        picture = Image.fromarray(values)
    elif mode == "P":
        picture = Image.fromarray(values)
        picture.putpalette([level for level in range(256) for _ in range(3)])
    else:
        picture = Image.fromarray(values).convert(mode)
    path = tmp_path / f"a{suffix}"
    picture.save(path)
    (volume,) = read(path)
    assert volume.planar and volume.slice_indices == (0,)
    assert np.array_equal(volume.array[0], values)


def test_big_endian_tiff(tmp_path: Path) -> None:
    values = (gray(2).astype(np.uint16) * 100).astype(">u2")
    entries = [(256, 4, values.shape[1]), (257, 4, values.shape[0]), (258, 3, 16), (259, 3, 1)]
    entries += [(262, 3, 1), (273, 4, 200), (278, 4, values.shape[0]), (279, 4, values.nbytes)]
    head = b"MM\x00*" + struct.pack(">IH", 8, len(entries))
    for tag, kind, value in entries:
        head += struct.pack(">HHI", tag, kind, 1)
        head += struct.pack(">HH", value, 0) if kind == 3 else struct.pack(">I", value)
    data = (head + struct.pack(">I", 0)).ljust(200, b"\0") + values.tobytes()
    (tmp_path / "a.tif").write_bytes(data)
    (volume,) = read(tmp_path / "a.tif")
    assert np.array_equal(volume.array[0], values)
    (one,) = slice_volume(volume, size=32)
    assert one.pixels is not None


@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_grey_jpeg(tmp_path: Path, mode: str) -> None:
    smooth = np.add.outer(np.arange(40), np.arange(40)).astype(np.uint8) * 3
    Image.fromarray(smooth).convert(mode).save(tmp_path / "a.JPG", quality=95)
    (volume,) = read(tmp_path / "a.JPG")
    assert np.abs(volume.array[0].astype(int) - smooth).max() <= 4


def colored(path: Path) -> Path:
    Image.fromarray(gray(3, (24, 20, 3))).save(path)
    return path


def test_pages_of_a_tiff_are_slices(tmp_path: Path) -> None:
    pages = [Image.fromarray(gray(seed)) for seed in range(3)]
    pages[0].save(tmp_path / "v.tif", save_all=True, append_images=pages[1:])
    (source,) = find_images([tmp_path]).sources
    assert (source.kind, source.slice_count, source.subject) == ("pages", 3, "v")
    volumes = list(read_source(source))
    assert [volume.slice_indices for volume in volumes] == [(0,), (1,), (2,)]
    assert all(np.array_equal(v.array[0], gray(n)) for n, v in enumerate(volumes))


def test_unreadable_pictures(tmp_path: Path) -> None:
    path = png(tmp_path / "a.png", shape=(100, 100))
    data = path.read_bytes()
    for damaged in (data[:3000], data[:40], b"", b"<html>", data[:50] + b"\xff" * 300):
        path.write_bytes(damaged)
        with pytest.raises(ImageError, match="cannot be read as an image") as error:
            read(path)
        assert str(path) in str(error.value)
    with pytest.raises(ImageError, match=r"c\.png is a colored image"):
        read(colored(tmp_path / "c.png"))


def test_one_bad_picture_does_not_lose_the_others(tmp_path: Path) -> None:
    for index in range(4):
        png(tmp_path / f"{index}.png", index)
    (tmp_path / "0.png").write_bytes(b"no")
    colored(tmp_path / "2.png")
    slices = [one for volume in read(tmp_path) for one in slice_volume(volume, size=32)]
    assert [one.index for one in slices] == [0, 1, 2, 3]
    assert [one.pixels is None for one in slices] == [True, False, True, False]
    assert "cannot be read" in slices[0].reason and "colored" in slices[2].reason
    for index in (1, 3):
        (tmp_path / f"{index}.png").write_bytes(b"no")
    with pytest.raises(ImageError, match="3 other images"):
        read(tmp_path)


def test_a_picture_bomb_is_refused_before_decoding(tmp_path: Path) -> None:
    for side in (10_001, 20_000):
        data = bytearray(png(tmp_path / "a.png").read_bytes())
        struct.pack_into(">II", data, 16, side, side)
        struct.pack_into(">I", data, 29, zlib.crc32(data[12:29]))
        (tmp_path / "a.png").write_bytes(data)
        with pytest.raises(ImageError, match="megapixels"):
            read(tmp_path / "a.png")


def test_pictures_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for index in range(3):
        png(tmp_path / f"{index}.png", index, (20 + index, 24))
    from MemorizationIndexLib.images import reading

    opened = []
    real = reading.read_picture
    monkeypatch.setattr(reading, "read_picture", lambda path: opened.append(path) or real(path))
    volumes = read_source(find_images([tmp_path]).sources[0])
    assert next(iter(volumes)).array.shape == (1, 20, 24) and len(opened) == 1


@pytest.mark.parametrize("shape", [(1, 1), (1, 50), (50, 1)])
def test_tiny_pictures_are_not_scored(tmp_path: Path, shape: tuple[int, int]) -> None:
    png(tmp_path / "a.png", shape=shape)
    np.save(tmp_path / "b.npy", gray(0, shape))
    reasons = [one.reason for volume in read(tmp_path) for one in slice_volume(volume)]
    assert len(reasons) == 2 and all(reason.startswith("too small") for reason in reasons)


# Stacks


@pytest.mark.parametrize("shape", [(6, 20, 24), (6, 20, 24, 1), (6, 1, 20, 24), (20, 24)])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("suffix", ["npy", "npz", "compressed"])
def test_stacks(tmp_path: Path, shape: tuple[int, ...], order: str, suffix: str) -> None:
    values = np.asarray(gray(4, shape).astype(">f4"), order=order)
    if suffix == "npy":
        np.save(tmp_path / "s.npy", values)
    else:
        (np.savez if suffix == "npz" else np.savez_compressed)(tmp_path / "s.npz", x=values)
    (volume,) = read(tmp_path)
    assert volume.planar and volume.name == "s" and volume.slice_indices is not None
    assert np.array_equal(volume.array, gray(4, shape).reshape(-1, 20, 24))
    if suffix == "npy":
        assert isinstance(volume.array, np.memmap) or isinstance(volume.array.base, np.memmap)


def test_npz_is_read_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from MemorizationIndexLib.images import stacks

    monkeypatch.setattr(stacks, "BLOCK_BYTES", 20 * 24 * 2)
    values = gray(5, (5, 20, 24))
    np.savez_compressed(tmp_path / "s.npz", x=values)
    volumes = read(tmp_path)
    assert [volume.slice_indices for volume in volumes] == [(0, 1), (2, 3), (4,)]
    assert np.array_equal(np.concatenate([volume.array for volume in volumes]), values)
    (tmp_path / "m.csv").write_text("path,subject_id,slice_index\ns.npz,A,0\ns.npz,A,3\n")
    slices = [one for volume in read(tmp_path / "m.csv") for one in slice_volume(volume, size=32)]
    assert [one.index for one in slices] == [0, 3]


def test_arrays_of_an_npz_are_sources(tmp_path: Path) -> None:
    np.savez(tmp_path / "s.npz", a=gray(0, (3, 20, 20)), b=gray(1, (2, 20, 20)))
    found = find_images([tmp_path / "s.npz"])
    assert [(s.name, s.slice_count) for s in found.sources] == [("s:a", 3), ("s:b", 2)]


@pytest.mark.parametrize(
    ("shape", "sentence"),
    [
        ((5, 20, 20, 3), "colored"),
        ((5, 3, 20, 20), "colored"),
        ((20, 20, 3), "colored"),
        ((5, 20, 20, 4), "colored"),
        ((20, 20, 1), "one image or many"),
        ((5, 1, 20, 1), "either axis"),
        ((5, 7, 20, 20), "a stack must be"),
        ((2, 1, 5, 20, 20), "a stack must be"),
        ((20,), "a stack must be"),
        ((), "a stack must be"),
        ((0, 20, 20), "no pixel"),
    ],
)
def test_shapes_that_are_no_stack(tmp_path: Path, shape: tuple, sentence: str) -> None:
    with pytest.raises(ImageError, match=sentence):
        stack_shape(shape, "s.npy")
    np.save(tmp_path / "s.npy", np.zeros(shape))
    with pytest.raises(ImageError, match=sentence):
        read(tmp_path / "s.npy")


def test_stacks_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "s.npy"
    np.save(path, gray(0, (6, 20, 20)))
    data = path.read_bytes()
    for damaged in (data[:1000], data[:60], b"", b"junk" * 99):
        path.write_bytes(damaged)
        with pytest.raises(ImageError, match="truncated"):
            read(path)
    np.save(path, np.array([{"evil": 1}], object), allow_pickle=True)
    with pytest.raises(ImageError, match="Python objects"):
        read(path)
    np.save(path, np.zeros((2, 20, 20), complex))
    with pytest.raises(ImageError, match="complex"):
        read(path)
    np.savez(tmp_path / "e.npz")
    with pytest.raises(ImageError, match="holds no array"):
        read(tmp_path / "e.npz")


def test_damaged_npz(tmp_path: Path) -> None:
    path = tmp_path / "s.npz"
    np.savez_compressed(path, x=gray(0, (6, 20, 20)))
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(ImageError, match="truncated or damaged"):
        read(path)
    flipped = bytearray(data)
    flipped[len(data) // 2] ^= 0xFF
    path.write_bytes(flipped)
    with pytest.raises(ImageError, match="truncated or damaged"):
        read(path)
    member = io.BytesIO()
    np.save(member, gray(0, (6, 20, 20)))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", member.getvalue()[:-100])
    with pytest.raises(ImageError, match="ends before its last voxel"):
        read(path)


def test_a_huge_stack_is_refused_from_its_header(tmp_path: Path) -> None:
    with (tmp_path / "s.npy").open("wb") as file:
        header = {"descr": "|u1", "fortran_order": False, "shape": (1, 20_000, 20_000)}
        np.lib.format.write_array_header_1_0(file, header)
    with pytest.raises(ImageError, match="20000 × 20000"):
        read(tmp_path / "s.npy")
