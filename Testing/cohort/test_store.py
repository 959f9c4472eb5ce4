from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from conftest import INPUT_SIZE
from MemorizationIndexLib import AuditOptions, CohortOptions, build_cohort, load_cohort, score
from MemorizationIndexLib.cohort import CohortError, store
from MemorizationIndexLib.cohort.cohort import check_encoder, encoder_of
from MemorizationIndexLib.encoders.structure import StructureEncoder
from MemorizationIndexLib.images import finding
from shared_data import ROOT

OPTIONS = CohortOptions(encoder="builtin", input_size=INPUT_SIZE)


@pytest.fixture
def copy(small_audit, tmp_path) -> Path:
    """A copy of the cohort to be damaged."""
    return Path(shutil.copytree(small_audit.cohort, tmp_path / "copy.micohort"))


def with_facts(path: Path, **changes) -> Path:
    """Change facts and mend the checksum, as another version of the library would write them."""
    content = json.loads((path / store.INDEX).read_text())
    del content["sha256"]
    content["facts"].update(changes)
    content["sha256"] = store._checksum(content)
    (path / store.INDEX).write_text(json.dumps(content))
    return path


@pytest.mark.parametrize("stage", ["_assemble", "_sha256"])
def test_a_cohort_replaced_while_it_is_read_is_not_mixed(small_audit, copy, monkeypatch, stage):
    other = build_cohort(
        small_audit.reference,
        copy.with_name("other"),
        options=CohortOptions(encoder="builtin", input_size=INPUT_SIZE, seed=7),
    )
    true = getattr(store, stage)

    def replaced_before(*arguments):
        if other.path.exists():
            shutil.rmtree(copy)
            other.path.rename(copy)
        return true(*arguments)

    monkeypatch.setattr(store, stage, replaced_before)
    loaded = load_cohort(copy)
    assert loaded.facts == other.facts
    assert np.array_equal(loaded.null.similarity, other.null.similarity)


def test_what_was_built_is_what_is_loaded(small_audit):
    cohort = load_cohort(small_audit.cohort)
    again = load_cohort(str(small_audit.cohort))
    assert cohort.facts == again.facts
    assert cohort.slice_count == 24
    assert cohort.subject_count == 6
    assert cohort.facts.subjects == tuple(f"p{number}" for number in range(6))
    assert cohort.name == "small"
    assert cohort.certifiable_alpha == pytest.approx(1 / 7)
    assert np.array_equal(cohort.reference.subjects, np.repeat(np.arange(6), 4))
    assert np.array_equal(cohort.indices, np.tile(np.arange(4), 6))
    assert {Path(source).name for source in cohort.sources} == {"head.nii.gz"}
    poses = len(cohort.facts.poses)
    for layer, width, rows in zip(
        cohort.features, cohort.facts.widths, cohort.reference.rows, strict=True
    ):
        assert layer.shape == rows.shape == (poses, 24, width)
        assert np.allclose(np.linalg.norm(rows, axis=2), 1, atol=1e-4)
    for whitener, layer, rows in zip(
        cohort.reference.whiteners, cohort.features, cohort.reference.rows, strict=True
    ):
        assert np.allclose(whitener.whiten(layer[0]), rows[0], atol=1e-5)
    assert np.isfinite(cohort.null.similarity).all()
    assert all(np.isfinite(values).all() for values in cohort.control.similarity.values())
    assert cohort.thumbnails is None


def test_the_null_of_verification_is_stored_and_names_nobody(small_audit):
    apart = load_cohort(small_audit.cohort).patients_apart
    assert apart.ssim.shape == apart.ncc.shape == (20,)
    assert apart.ssim.dtype == apart.ncc.dtype == np.float64
    for values in (apart.ssim, apart.ncc):
        assert np.isfinite(values).all() and (np.abs(values) < 0.95).all()


def test_a_cohort_of_an_older_library_has_no_null_of_verification(copy):
    content = json.loads((copy / store.INDEX).read_text())
    del content["sha256"], content["facts"]["patients_apart"]
    for name in ("apart.ssim.npy", "apart.ncc.npy"):
        (copy / name).unlink()
        del content["files"][name]
    content["sha256"] = store._checksum(content)
    (copy / store.INDEX).write_text(json.dumps(content))
    assert load_cohort(copy).patients_apart is None


def test_a_null_of_another_arithmetic_is_left_alone(copy):
    assert load_cohort(with_facts(copy, patients_apart=99)).patients_apart is None


def test_large_arrays_are_memory_mapped(small_audit):
    cohort = load_cohort(small_audit.cohort)
    for array in (*cohort.features, *cohort.reference.rows):
        assert isinstance(array, np.memmap)
        assert not array.flags.writeable


def test_nothing_is_pickled_and_no_pixel_is_stored(small_audit):
    for path in small_audit.cohort.iterdir():
        assert path.suffix in (".npy", ".json", ".txt")
        if path.suffix == ".npy":
            array = np.load(path, allow_pickle=False)
            assert array.dtype.kind in "fiu"
            # Feature rows are far from pictures in shape; a picture would be square at the end.
            assert array.ndim < 3 or array.shape[-1] != array.shape[-2]
    assert not (small_audit.cohort / "thumbnails.npy").exists()


def test_it_loads_with_numpy_alone(small_audit):
    program = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in sys.stdlib_module_names | {"numpy", "MemorizationIndexLib"}:
            raise ImportError(name)
sys.meta_path.insert(0, Missing())
from MemorizationIndexLib.cohort import load_cohort
print(load_cohort(sys.argv[1]).slice_count)
"""
    done = subprocess.run(
        [sys.executable, "-S", "-c", program, str(small_audit.cohort)],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(
                [str(ROOT / "MemorizationIndex"), str(Path(np.__file__).parents[1])]
            ),
        },
        capture_output=True,
        encoding="utf-8",
        errors="replace",
    )
    assert done.stdout.strip() == "24", done.stderr


def file_names(request_path: Path) -> list[str]:
    return sorted(path.name for path in request_path.iterdir())


def test_a_flipped_byte_in_any_file_is_refused_naming_it(copy):
    for name in file_names(copy):
        path = copy / name
        whole = path.read_bytes()
        for position in {0, len(whole) // 2, len(whole) - 2}:
            damaged = bytearray(whole)
            damaged[position] ^= 0x80
            path.write_bytes(damaged)
            with pytest.raises(CohortError, match=rf"is damaged: {name}.*again\."):
                load_cohort(copy)
        path.write_bytes(whole)
    load_cohort(copy)


def test_every_bit_of_the_index_counts(copy):
    path = copy / store.INDEX
    whole = path.read_bytes()
    facts = load_cohort(copy).facts
    rng = np.random.default_rng(0)
    for position in rng.choice(len(whole), 150, replace=False):
        damaged = bytearray(whole)
        damaged[position] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        try:
            # Between two words of JSON a blank may turn into another kind of blank.
            assert load_cohort(copy).facts == facts
        except CohortError as error:
            assert "\n" not in str(error)
    path.write_bytes(whole)


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b"null", b'{"sha256": 1}', b"\xff\xfe", b"3"]
)
def test_an_index_that_is_none_is_refused(copy, content):
    (copy / store.INDEX).write_bytes(content)
    with pytest.raises(CohortError, match=r"is damaged: cohort.json"):
        load_cohort(copy)


def test_missing_files_are_named(copy):
    for name in file_names(copy):
        shutil.move(copy / name, copy.parent / "away")
        with pytest.raises(CohortError, match=name):
            load_cohort(copy)
        shutil.move(copy.parent / "away", copy / name)


def test_a_truncated_file_is_refused(copy):
    path = copy / "rows.fine.npy"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(CohortError, match=r"rows\.fine\.npy does not match its checksum"):
        load_cohort(copy)


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_another_format_version_is_refused_naming_both(copy, version):
    with pytest.raises(
        CohortError, match=rf"format version {version} and this library reads version 1"
    ):
        load_cohort(with_facts(copy, format_version=version))


def test_facts_that_do_not_fit_the_files_are_refused(copy):
    with pytest.raises(CohortError, match="do not fit together"):
        load_cohort(with_facts(copy, layers=["fine", "middle", "other"]))


def test_another_encoder_is_refused_naming_both(small_audit):
    cohort = load_cohort(small_audit.cohort)
    other = StructureEncoder(128)
    with pytest.raises(
        CohortError, match=r"builtin at 96 pixels .*builtin at 128 pixels"
    ) as caught:
        check_encoder(cohort, other)
    assert cohort.facts.fingerprint in str(caught.value)
    assert other.fingerprint in str(caught.value)
    with pytest.raises(CohortError, match=r"96 pixels .*128 pixels"):
        score(small_audit.queries, cohort, encoder=other)


def test_another_arithmetic_of_the_encoder_is_refused(small_audit, monkeypatch):
    monkeypatch.setattr("MemorizationIndexLib.encoders.structure.ARITHMETIC_VERSION", 99)
    with pytest.raises(CohortError, match="same encoder, or build the cohort again"):
        score(small_audit.queries, small_audit.cohort)


@pytest.mark.parametrize("asked", ["mri-core", "mine.pt", "mine.py:load"])
def test_another_encoder_is_refused_before_it_is_made(small_audit, asked):
    with pytest.raises(CohortError, match=rf"the encoder builtin, and --encoder asks for {asked}"):
        score(small_audit.queries, small_audit.cohort, options=AuditOptions(encoder=asked))
    assert encoder_of(load_cohort(small_audit.cohort), "auto") == "builtin"


def test_no_cohort_is_said_so(tmp_path):
    with pytest.raises(CohortError, match="There is no cohort at"):
        load_cohort(tmp_path / "none.micohort")
    with pytest.raises(CohortError, match=r"is not a cohort: it has no cohort.json"):
        load_cohort(tmp_path)
    with pytest.raises(CohortError, match="cannot be read: File name too long"):
        load_cohort(tmp_path / ("x" * 300))


def test_the_ending_may_be_left_out(copy):
    assert load_cohort(copy.with_suffix("")).path == copy
    assert store.cohort_path("a/b") == Path("a/b.micohort")
    assert store.cohort_path("a/b.c") == Path("a/b.c.micohort")
    for name in ("", ".", "..", "/", "a/.."):
        with pytest.raises(CohortError, match="no name for a cohort"):
            store.cohort_path(name)


def test_a_folder_of_images_of_the_same_name_is_not_in_the_way(copy):
    images = copy.with_suffix("")
    images.mkdir()
    assert load_cohort(images).path == copy
    shutil.rmtree(copy)
    with pytest.raises(CohortError, match=r"give the folder NAME\.micohort that a build made"):
        load_cohort(images)


def test_searching_for_images_passes_cohorts_by():
    assert finding._COHORT == store.SUFFIX


def leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_failed_writing_leaves_nothing_behind(tmp_path):
    with pytest.raises(KeyboardInterrupt), store.writing(tmp_path / "c.micohort") as writer:
        writer.array("some", np.arange(3))
        raise KeyboardInterrupt
    assert leftovers(tmp_path) == []


def test_what_is_no_cohort_is_not_overwritten(tmp_path):
    foreign = tmp_path / "c.micohort"
    foreign.mkdir()
    (foreign / "thesis.txt").write_text("precious")
    with (
        pytest.raises(CohortError, match="exists and is not a cohort"),
        store.writing(foreign),
    ):
        pass
    assert (foreign / "thesis.txt").read_text() == "precious"
    plain = tmp_path / "d.micohort"
    plain.write_text("precious")
    with pytest.raises(CohortError, match="exists and is not a cohort"), store.writing(plain):
        pass
    assert plain.read_text() == "precious"


def test_a_missing_folder_is_said_so(tmp_path):
    with (
        pytest.raises(CohortError, match="nowhere does not exist: make it first"),
        store.writing(tmp_path / "nowhere" / "c.micohort"),
    ):
        pass


def test_the_former_cohort_returns_if_the_new_one_cannot_take_its_place(copy, monkeypatch):
    before = load_cohort(copy).facts
    original = Path.rename

    def rename(self: Path, target: Path) -> Path:
        if Path(target) == copy and self.name != store.FORMER:
            raise OSError(5, "Input/output error")
        return original(self, target)

    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises(CohortError, match="Input/output error"), store.writing(copy):
        pass
    monkeypatch.undo()
    assert load_cohort(copy).facts == before
    assert leftovers(copy.parent) == [copy.name]


def killed_build(cohort: Path, *, at: str) -> Path:
    """Leave what a build of a cohort leaves that is killed at a stage; return its folder."""
    program = f"""
import os, shutil, sys
from pathlib import Path
from MemorizationIndexLib.cohort import store
cohort = Path(sys.argv[1])
whole = Path(sys.argv[2])
original = Path.rename
def rename(self, target):
    if Path(target) == cohort:
        os._exit(9)
    return original(self, target)
with store.writing(cohort) as writer:
    shutil.copytree(whole, writer.folder, dirs_exist_ok=True)
    if "{at}" == "writing":
        os._exit(9)
    Path.rename = rename
"""
    before = set(cohort.parent.iterdir())
    done = subprocess.run(
        [sys.executable, "-c", program, str(cohort), str(cohort)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "MemorizationIndex")},
    )
    assert done.returncode == 9
    (left,) = (path for path in set(cohort.parent.iterdir()) - before)
    return left


def test_a_cohort_returns_if_its_replacement_was_killed_between_two_renames(copy):
    before = load_cohort(copy).facts
    work = killed_build(copy, at="putting")
    assert not copy.exists()
    assert (work / store.FORMER / store.INDEX).is_file()
    assert load_cohort(copy.with_suffix("")).facts == before
    assert copy.exists()


def test_the_next_build_puts_back_and_clears_up(copy):
    first = killed_build(copy, at="writing")
    second = killed_build(copy, at="putting")
    assert not first.exists()
    assert leftovers(copy.parent) == [second.name]
    with pytest.raises(KeyboardInterrupt), store.writing(copy):
        raise KeyboardInterrupt
    assert leftovers(copy.parent) == [copy.name]
    assert load_cohort(copy).slice_count == 24


def test_what_another_build_is_at_is_left_alone(copy):
    with store.writing(copy) as one:
        one.array("some", np.arange(3))
        with pytest.raises(KeyboardInterrupt), store.writing(copy):
            raise KeyboardInterrupt
        assert (one.folder / "some.npy").is_file()
        # A build of another cohort whose name begins alike.
        with store.writing(copy.parent / f"{copy.name}-abcdefgh.micohort") as other:
            assert not store._is_dead(other.folder.parent)
        # A build of the future or the past that knows no lock.
        unlocked = copy.parent / f".{copy.name}-abcd1234"
        unlocked.mkdir()
        store._sweep(copy)
        assert unlocked.exists()
        os.utime(unlocked, (0, 0))
        store._sweep(copy)
        assert not unlocked.exists()
        shutil.copytree(copy, one.folder, dirs_exist_ok=True)
    assert load_cohort(copy).slice_count == 24


def test_an_unwritable_folder_is_said_so(small_audit, tmp_path, monkeypatch):
    # The superuser may write anywhere, so the system's refusal is made.
    def refuse(**_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(store.tempfile, "mkdtemp", refuse)
    with pytest.raises(
        CohortError, match=rf"cannot be written in {tmp_path}: Permission denied; choose another"
    ):
        build_cohort(small_audit.reference, tmp_path / "c", options=OPTIONS)


@pytest.fixture
def tiny_disk(tmp_path):
    """Return a function that gives a disk of so many KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = []

    def mount(kib: int) -> Path:
        if mounted:
            subprocess.run(["umount", place], check=True)
            mounted.clear()
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", place], capture_output=True
        )
        if done.returncode:
            pytest.skip("needs the right to mount a small disk")
        mounted.append(kib)
        return place

    try:
        mount_exists = shutil.which("mount") and hasattr(os, "geteuid") and os.geteuid() == 0
        if not mount_exists:
            pytest.skip("needs the right to mount a small disk")
        yield mount
    finally:
        if mounted:
            subprocess.run(["umount", place], check=True)


@pytest.mark.parametrize("kib", [4, 700, 2400, 5000])
def test_a_full_disk_is_said_so_at_every_stage(small_audit, tiny_disk, kib):
    place = tiny_disk(kib)
    with pytest.raises(CohortError, match=rf"The disk is full while writing the cohort in {place}"):
        build_cohort(small_audit.reference, place / "c.micohort", options=OPTIONS)
    assert leftovers(place) == []


def test_a_full_disk_leaves_the_former_cohort(small_audit, tiny_disk):
    place = tiny_disk(10_000)
    former = Path(shutil.copytree(small_audit.cohort, place / "c.micohort"))
    with pytest.raises(CohortError, match="The disk is full"):
        build_cohort(small_audit.reference, former, options=OPTIONS)
    assert leftovers(place) == ["c.micohort"]
    assert load_cohort(former).slice_count == 24


@pytest.mark.parametrize("method", ["array", "sources", "spool", "finish"])
def test_a_write_that_fails_for_want_of_room_is_said_so(tmp_path, monkeypatch, method):
    """The same without a disk of one's own: every write of a small file meets a full disk."""
    writer = store.CohortWriter(tmp_path / "work" / store.NEW)
    writer.folder.mkdir(parents=True)

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    monkeypatch.setattr(Path, "write_text", full)
    monkeypatch.setattr(Path, "open", full)
    monkeypatch.setattr(store, "asdict", lambda facts: {})
    with pytest.raises(CohortError, match="The disk is full"):
        if method == "array":
            writer.array("a", np.zeros(3))
        elif method == "sources":
            writer.sources(["a"])
        elif method == "finish":
            writer.finish(None)
        else:
            with writer.spool(writer.folder / "spool" / "0") as append:
                append(np.zeros(3))
