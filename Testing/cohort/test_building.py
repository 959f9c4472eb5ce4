from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from conftest import ARGUMENTS, INPUT_SIZE
from MemorizationIndexLib import (
    AuditOptions,
    CohortOptions,
    build_cohort,
    build_cohort_from_volumes,
    load_cohort,
    score,
)
from MemorizationIndexLib.cohort.building import _Keeper
from MemorizationIndexLib.encoders.structure import StructureEncoder
from MemorizationIndexLib.images.volume import ImageError, Volume
from MemorizationIndexLib.index.protocols import CalibrationError
from MemorizationIndexLib.progress import CancelledError, Progress
from phantom_files import phantom, phantom_file
from shared_data import ROOT

OPTIONS = CohortOptions(encoder="builtin", input_size=INPUT_SIZE)
BARE = AuditOptions(pictures=False, verify=False)
PLAIN = dataclasses.replace(OPTIONS, robust=False)


def volumes(count: int, slices: int = 1, first: int = 0) -> list[Volume]:
    return [
        Volume(f"v{seed}", f"s{seed}", phantom(seed, slices), np.eye(4), "", planar=True)
        for seed in range(first, first + count)
    ]


@pytest.mark.parametrize("subjects", [5, 10, 20])
def test_small_cohorts_of_one_slice_each_give_finite_answers_and_say_what_they_cannot(
    tmp_path, subjects
):
    from MemorizationIndexLib import score_volumes

    cohort = build_cohort_from_volumes(volumes(subjects), tmp_path / "c", options=PLAIN)
    assert cohort.null.similarity.shape == (subjects,)
    assert np.isfinite(cohort.null.similarity).all()
    result = score_volumes([*volumes(1), *volumes(2, first=90)], cohort, options=BARE)
    for one in result.slices:
        numbers = [one.similarity, one.mi, one.oni, one.p_value, one.q_value, one.margin]
        assert np.isfinite(numbers).all()
    summary = result.summary
    assert np.isfinite([summary.null_mean, summary.null_sd, summary.exact_copy_mi]).all()
    assert summary.certifiable_alpha == pytest.approx(1 / (subjects + 1))
    assert any(f"{subjects} reference subjects cannot certify" in w for w in summary.warnings)
    assert result.slices[0].nearest_subject == "s0"
    assert result.slices[0].similarity == pytest.approx(1, abs=1e-3)


def test_fewer_than_five_subjects_are_refused_before_anything_is_encoded(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "MemorizationIndexLib.cohort.building.get_encoder",
        lambda *_, **__: pytest.fail("encoder made for nothing"),
    )
    with pytest.raises(CalibrationError, match="has 4 subjects and calibration needs at least 5"):
        build_cohort_from_volumes(volumes(4), tmp_path / "c", options=PLAIN)
    assert list(tmp_path.iterdir()) == []


def test_subjects_without_a_scorable_slice_do_not_count(tmp_path):
    blank = [
        Volume(f"b{n}", f"b{n}", np.zeros((2, 40, 40)), np.eye(4), "", planar=True)
        for n in range(3)
    ]
    with pytest.raises(CalibrationError, match="has 4 subjects"):
        build_cohort_from_volumes([*volumes(4), *blank], tmp_path / "c", options=PLAIN)
    with pytest.raises(ImageError, match=r"None of the .* slices can be scored"):
        build_cohort_from_volumes(
            [dataclasses.replace(blank[0], name=f"b{n}", subject=f"b{n}") for n in range(6)],
            tmp_path / "c",
            options=PLAIN,
        )
    cohort = build_cohort_from_volumes([*volumes(5), *blank], tmp_path / "c", options=PLAIN)
    assert cohort.subject_count == 5
    assert cohort.facts.skipped == 6


def test_a_negative_seed_and_an_unknown_plane_are_refused(tmp_path):
    with pytest.raises(CalibrationError, match="seed is -1 and must be 0 or more"):
        build_cohort_from_volumes(
            volumes(5), tmp_path / "c", options=dataclasses.replace(PLAIN, seed=-1)
        )
    with pytest.raises(ImageError, match="no plane 'oblique'"):
        build_cohort_from_volumes(
            volumes(5), tmp_path / "c", options=dataclasses.replace(PLAIN, plane="oblique")
        )


def same_calibration(one, other) -> None:
    def sorted_null(cohort):
        return np.sort(cohort.null.similarity)

    np.testing.assert_allclose(sorted_null(one), sorted_null(other), rtol=1e-3, atol=1e-5)
    assert one.control.similarity.keys() == other.control.similarity.keys()
    for name, values in one.control.similarity.items():
        np.testing.assert_allclose(values, other.control.similarity[name], rtol=1e-3, atol=1e-5)
    assert one.control.rightly_named == other.control.rightly_named


def test_the_order_of_the_images_does_not_matter(tmp_path, monkeypatch):
    # Of the 8 slices of a subject, 4 are kept as known copies.
    monkeypatch.setattr("MemorizationIndexLib.cohort.building.CONTROL_SLICES", 10)
    given = volumes(5, 8)
    one = build_cohort_from_volumes(given, tmp_path / "a", options=PLAIN)
    other = build_cohort_from_volumes(given[::-1], tmp_path / "b", options=PLAIN)
    assert one.facts.subjects == other.facts.subjects
    same_calibration(one, other)


def test_a_seed_decides_everything(small_audit, tmp_path):
    again = build_cohort(small_audit.reference, tmp_path / "a", options=OPTIONS)
    cohort = load_cohort(small_audit.cohort)
    for path in sorted(small_audit.cohort.glob("*.npy")):
        assert path.read_bytes() == (again.path / path.name).read_bytes(), path.name
    assert dataclasses.replace(again.facts, created="") == dataclasses.replace(
        cohort.facts, created=""
    )
    other = build_cohort(
        small_audit.reference, tmp_path / "b", options=dataclasses.replace(OPTIONS, seed=7)
    )
    noise = "noise_0.02"
    assert not np.allclose(other.control.similarity[noise], cohort.control.similarity[noise])


def test_without_the_cache_the_answer_is_the_same(small_audit, tmp_path):
    fresh = build_cohort(
        small_audit.reference, tmp_path / "a", options=dataclasses.replace(OPTIONS, cache=False)
    )
    same_calibration(fresh, load_cohort(small_audit.cohort))


def test_an_anonymized_cohort_holds_no_name_and_calibrates_the_same(tmp_path):
    names = ["Zebra-Zoe", "Álvarez", "Müller Jörg", "漢字", "mallory", "<script>"]
    for number, name in enumerate(names):
        phantom_file(tmp_path / "Klinik Süd" / name / f"scan-of-{number}.nii.gz", number, slices=2)
    broken = tmp_path / "Klinik Süd" / "Broken-Bob" / "bad.nii.gz"
    broken.parent.mkdir()
    broken.write_bytes(b"no image")
    folder = tmp_path / "Klinik Süd"
    options = dataclasses.replace(PLAIN, anonymize=True, thumbnails=True)
    hidden = build_cohort(folder, tmp_path / "hidden", options=options)
    secrets = [*names, "Klinik", "scan-of", "Broken", str(tmp_path), "head", tmp_path.name]
    for path in hidden.path.iterdir():
        content = path.read_bytes()
        for secret in secrets:
            for encoding in ("utf-8", "utf-16-le", "latin-1"):
                assert secret.encode(encoding, "ignore") not in content or not secret.encode(
                    encoding, "ignore"
                ), (path.name, secret)
            escaped = secret.encode("ascii", "backslashreplace").replace(b"\\x", b"\\u00")
            assert escaped not in content, (path.name, secret)
    assert hidden.facts.anonymized
    assert set(hidden.sources) == {""}
    assert len(set(hidden.facts.subjects)) == 6
    # The order of rows and the numbers of volumes must not follow that of the names either.
    first_rows = [int(np.flatnonzero(hidden.reference.subjects == code)[0]) for code in range(6)]
    pictures = [int(hidden.digests[row]) for row in first_rows]
    assert list(dict.fromkeys(hidden.volume_codes.tolist())) == list(range(6))
    shown = build_cohort(folder, tmp_path / "shown", options=PLAIN)
    same_calibration(hidden, shown)
    assert pictures != [int(shown.digests[row]) for row in first_rows]
    again = build_cohort(folder, tmp_path / "again", options=options)
    assert set(again.facts.subjects).isdisjoint(hidden.facts.subjects)  # another salt
    result = score(folder / names[3], hidden, options=BARE)
    assert {one.nearest_subject for one in result.slices} <= set(hidden.facts.subjects)
    assert len({one.nearest_subject for one in result.slices}) == 1
    assert result.summary.anonymized


@pytest.mark.parametrize("protocol", ["calibrated", "paper", "reference"])
def test_the_salt_has_no_say_in_the_numbers(tmp_path, protocol):
    given = volumes(9, 3)
    options = dataclasses.replace(PLAIN, protocol=protocol, anonymize=True, seed=4)
    one, again = (
        build_cohort_from_volumes(given, tmp_path / name, options=options) for name in "ab"
    )
    assert one.facts.subjects != again.facts.subjects
    for path in sorted(one.path.glob("*.npy")):
        assert path.read_bytes() == (again.path / path.name).read_bytes(), path.name
    if protocol == "paper":
        shown = dataclasses.replace(options, anonymize=False)
        same_calibration(one, build_cohort_from_volumes(given, tmp_path / "shown", options=shown))


def test_thumbnails_are_stored_only_if_wanted_and_lie_in_row_order(small_audit, tmp_path):
    options = dataclasses.replace(PLAIN, thumbnails=True)
    cohort = build_cohort(small_audit.reference, tmp_path / "c", options=options)
    assert cohort.thumbnails.shape == (24, 96, 96)
    assert cohort.thumbnails.dtype == np.uint8
    from MemorizationIndexLib.cohort.building import thumbnail
    from MemorizationIndexLib.cohort.pictures import reference_pixels

    pixels = reference_pixels(cohort, range(24))
    assert len(pixels) == 24
    for row, picture in pixels.items():
        assert np.array_equal(cohort.thumbnails[row], thumbnail(picture))


def test_pictures_of_an_image_that_changed_are_left_out(small_audit, tmp_path):
    from MemorizationIndexLib.cohort.pictures import reference_pixels

    folder = tmp_path / "images"
    shutil.copytree(small_audit.reference, folder)
    cohort = build_cohort(folder, tmp_path / "c", options=PLAIN)
    phantom_file(folder / "p0" / "head.nii.gz", 77)
    (folder / "p1" / "head.nii.gz").unlink()
    (folder / "p2" / "head.nii.gz").write_bytes(b"damaged")
    assert set(reference_pixels(cohort, range(24))) == set(range(12, 24))


def test_pictures_are_found_where_an_image_lost_slices(small_audit, tmp_path):
    """The places that the cohort remembers are where it looks first, not only."""
    import SimpleITK as sitk  # noqa: N813

    from MemorizationIndexLib.cohort.pictures import reference_pixels

    folder = tmp_path / "images"
    shutil.copytree(small_audit.reference, folder)
    cohort = build_cohort(folder, tmp_path / "c", options=PLAIN)
    before = reference_pixels(load_cohort(cohort.path), range(4))
    head = folder / "p0" / "head.nii.gz"
    image = sitk.ReadImage(str(head))
    sitk.WriteImage(image[:, :, 2:], str(head))
    after = reference_pixels(load_cohort(cohort.path), range(4))
    assert set(before) == {0, 1, 2, 3} and set(after) == {2, 3}
    assert all(np.array_equal(after[row], before[row]) for row in after)


def test_pictures_are_read_once_and_only_the_slices_asked_for(small_audit, monkeypatch):
    from MemorizationIndexLib.cohort import pictures

    cut = []

    def slices(volume, **options):
        cut.append(volume.selected)
        return slice_volume(volume, **options)

    slice_volume = pictures.slice_volume
    monkeypatch.setattr(pictures, "slice_volume", slices)
    cohort = load_cohort(small_audit.cohort)
    first = pictures.reference_pixels(cohort, [1, 3, 9])
    assert cut == [(1, 3), (1,)]
    again = pictures.reference_pixels(cohort, [9, 3, 1])
    assert len(cut) == 2 and all(np.array_equal(first[row], again[row]) for row in first)


def test_pictures_are_read_without_the_manifest_beside_them(tmp_path, monkeypatch):
    from PIL import Image

    from MemorizationIndexLib.cohort.pictures import reference_pixels
    from MemorizationIndexLib.images import finding

    lines = ["path,subject_id"]
    for number in range(5):
        slices = phantom(number, 3)[1].astype(np.float64)
        slices *= 255 / slices.max()
        Image.fromarray(slices.astype(np.uint8)).save(tmp_path / f"{number}.png")
        lines.append(f"{number}.png,p{number}")
    (tmp_path / "manifest.csv").write_text("\n".join(lines))
    cohort = build_cohort(tmp_path, tmp_path / "c", options=OPTIONS)
    looked_up = []
    monkeypatch.setattr(finding, "load_manifest", looked_up.append)
    assert set(reference_pixels(cohort, range(5))) == set(range(5))
    assert not looked_up


def test_what_is_remembered_of_pictures_is_bounded(small_audit, monkeypatch):
    from MemorizationIndexLib.cohort import pictures

    monkeypatch.setattr(pictures, "_REMEMBERED", 3 * 4 * INPUT_SIZE**2)
    cohort = load_cohort(small_audit.cohort)
    assert len(pictures.reference_pixels(cohort, range(10))) == 10
    assert len(cohort.memory[pictures._MEMORY]) == 3


def test_cancelling_while_patients_are_laid_over_each_other_keeps_what_was_encoded(
    small_audit, tmp_path, monkeypatch
):
    monkeypatch.setenv("MEMORIZATION_INDEX_CACHE", str(tmp_path / "cache"))
    told: list[Progress] = []

    def cancelled() -> bool:
        return bool(told) and told[-1].stage.startswith("Laying") and told[-1].done >= 3

    options = dataclasses.replace(PLAIN, cache=True)
    with pytest.raises(CancelledError):
        build_cohort(
            small_audit.reference,
            tmp_path / "c",
            options=options,
            progress=told.append,
            cancelled=cancelled,
        )
    assert told[-1].done == 3 and not (tmp_path / "c.micohort").exists()
    monkeypatch.setattr(StructureEncoder, "encode", None)
    built = build_cohort(small_audit.reference, tmp_path / "c", options=options)
    assert len(built.patients_apart.ssim) == 20


def test_an_anonymized_cohort_has_no_images_to_verify_with(small_audit, tmp_path):
    options = dataclasses.replace(PLAIN, anonymize=True)
    built = build_cohort(small_audit.reference, tmp_path / "c", options=options)
    assert built.patients_apart is None and built.facts.patients_apart == 0


def test_progress_is_told_and_cancelling_leaves_nothing(small_audit, tmp_path):
    told: list[Progress] = []
    build_cohort(small_audit.reference, tmp_path / "a", options=PLAIN, progress=told.append)
    for stage in {one.stage for one in told}:
        done = [one for one in told if one.stage == stage]
        assert [one.done for one in done] == sorted(one.done for one in done)
        assert done[-1].done == done[-1].total
    stages = list(dict.fromkeys(one.stage for one in told))
    for stop_at in stages[1:]:
        seen: list[Progress] = []
        with pytest.raises(CancelledError):
            build_cohort(
                small_audit.reference,
                tmp_path / "b",
                options=PLAIN,
                progress=seen.append,
                cancelled=lambda seen=seen, stage=stop_at: any(one.stage == stage for one in seen),
            )
        assert [path.name for path in tmp_path.iterdir()] == ["a.micohort"], stop_at


def test_robust_is_refused_where_the_protocol_knows_no_poses(tmp_path):
    options = dataclasses.replace(OPTIONS, protocol="paper", robust=True)
    with pytest.raises(CalibrationError, match="paper compares slices as they are"):
        build_cohort_from_volumes(volumes(5), tmp_path / "c", options=options)


OWN_ENCODER = """
import numpy as np

class Own:
    name, description = "own", "a made-up encoder"
    layers, widths, input_size, fingerprint = ("low", "high"), (6, WIDTH), 32, "own-WIDTH"

    def encode(self, pixels):
        coarse = pixels.reshape(len(pixels), 8, 4, 8, 4).mean((2, 4)).reshape(len(pixels), -1)
        rng = np.random.default_rng(0)
        return tuple(
            (coarse @ rng.standard_normal((64, width))).astype(np.float32) for width in self.widths
        )

def load():
    return Own()
"""


def own_encoder(folder: Path, width: int) -> str:
    path = folder / f"own{width}.py"
    path.write_text(OWN_ENCODER.replace("WIDTH", str(width)))
    return f"{path}:load"


@pytest.mark.parametrize("protocol", ["paper", "reference"])
@pytest.mark.parametrize("width", [8, 40])
def test_published_protocols_give_no_nan_and_say_with_numbers_where_they_are_undefined(
    tmp_path, protocol, width
):
    from MemorizationIndexLib import score_volumes

    options = CohortOptions(encoder=own_encoder(tmp_path, width), protocol=protocol)
    cohort = build_cohort_from_volumes(volumes(6, 4), tmp_path / "c", options=options)
    told = any(
        f"24 slices cannot determine a covariance of {width}" in sentence
        for sentence in cohort.facts.warnings
    )
    assert told == (width == 40)
    result = score_volumes([*volumes(1, 4, first=50), *volumes(1, 4)], cohort, options=BARE)
    summary = result.summary
    for one in result.slices:
        if one.verdict.value == "not scored":
            assert one.similarity is None
            assert "undefined under the protocol" in one.reason
        else:
            assert np.isfinite([one.similarity, one.mi, one.oni, one.p_value, one.q_value]).all()
    assert np.isfinite([summary.null_mean, summary.null_sd, summary.exact_copy_mi]).all()
    for array in (result.null, result.statistics, *result.control.values()):
        assert np.isfinite(array).all()
    assert all(np.isfinite([row.power_copy, row.power_suspicious]).all() for row in summary.power)
    if not summary.scored:
        assert any("undefined" in sentence for sentence in summary.warnings)


def test_too_few_slices_to_halve_are_refused(tmp_path):
    options = CohortOptions(encoder=own_encoder(tmp_path, 8), protocol="paper")
    with pytest.raises(CalibrationError, match=r"3 scorable slices .* at least 4"):
        build_cohort_from_volumes(volumes(3), tmp_path / "c", options=options)


def test_known_copies_are_drawn_evenly_and_kept_bounded():
    subjects = frozenset(f"s{number}" for number in range(50))
    keeper = _Keeper(subjects, 0)
    for number in range(50 * 30):
        keeper.offer(f"s{number % 50}", number, np.zeros((2, 2), np.float32))
    names, pictures = keeper.drawn()
    assert len(names) == len(pictures) == 200
    assert {names.count(name) for name in subjects} == {4}
    late = _Keeper(frozenset({"s"}), 0)
    for number in range(4000):
        late.offer("s", number, np.full((1, 1), number, np.float32))
    drawn = [int(picture[0, 0]) for picture in late.drawn()[1]]
    assert 1600 < np.mean(drawn) < 2400


def test_thousands_of_subjects_give_a_bounded_sample():
    subjects = frozenset(f"s{number:05}" for number in range(3000))
    keeper = _Keeper(subjects, 0)
    for number, name in enumerate(sorted(subjects)):
        keeper.offer(name, number, np.zeros((1, 1), np.float32))
    assert len(keeper.drawn()[0]) == 200


def start_build(reference: Path, cohort: Path, *more: str) -> subprocess.Popen:
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "MemorizationIndexLib",
            "build",
            str(reference),
            "--cohort",
            str(cohort),
            *ARGUMENTS,
            *more,
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT / "MemorizationIndex")},
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
    )


def wait_for(process: subprocess.Popen, happened) -> None:
    until = time.monotonic() + 120
    while not happened():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.005)


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
@pytest.mark.parametrize("stage", ["spool", "features.fine.npy", "rows.fine.npy"])
def test_a_killed_build_leaves_the_former_cohort_whole(small_audit, tmp_path, stage):
    former = Path(shutil.copytree(small_audit.cohort, tmp_path / "c.micohort"))
    process = start_build(small_audit.reference, former, "--seed", "5")
    wait_for(process, lambda: list(tmp_path.glob(f".c.micohort-*/new/{stage}")))
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert load_cohort(former).facts == load_cohort(small_audit.cohort).facts
    visible = [path.name for path in tmp_path.iterdir() if path.name[0] != "."]
    assert visible == ["c.micohort"]


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_a_killed_first_build_leaves_no_cohort_and_the_next_succeeds(small_audit, tmp_path):
    process = start_build(small_audit.reference, tmp_path / "c.micohort")
    wait_for(process, lambda: list(tmp_path.glob(".c.micohort-*/new/rows.fine.npy")))
    process.kill()
    process.communicate()
    assert not (tmp_path / "c.micohort").exists()
    # What the killed one left lies hidden and disturbs neither a search nor the next build.
    assert build_cohort(small_audit.reference, tmp_path / "c", options=OPTIONS).slice_count == 24
