"""The worker as a process: messages, results after each volume, odd folders, every failure."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from MemorizationIndexLib import worker
from MemorizationIndexLib.exchange import read_result, read_volumes, write_volumes
from MemorizationIndexLib.images.volume import Volume
from MemorizationIndexLib.results import Verdict

LIBRARY = Path(__file__).resolve().parents[1] / "MemorizationIndex"
AFFINE = np.diag([1.8, 1.8, 7.0, 1.0])


def work(folder, job, *, library=LIBRARY, prelude=""):
    """Run a job as the module does; returns messages, exit status and standard error."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
    command = [sys.executable, "-u", "-m", "MemorizationIndexLib.worker", str(folder)]
    if prelude:
        code = f"{prelude}\nimport sys\nfrom MemorizationIndexLib import worker\n"
        code += f"sys.exit(worker.main([{str(folder)!r}]))"
        command = [sys.executable, "-u", "-c", code]
    process = subprocess.Popen(
        command,
        cwd=library,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    # Standard input stays open: the worker ends with it.
    complaints = []
    reader = threading.Thread(target=lambda: complaints.append(process.stderr.read()))
    reader.start()
    out = process.stdout.read()
    process.wait(timeout=300)
    reader.join()
    for stream in (process.stdin, process.stdout, process.stderr):
        stream.close()
    messages = [json.loads(line) for line in out.splitlines()]
    return messages, process.returncode, complaints[0].decode("utf-8", "replace")


@pytest.fixture(scope="module")
def phantoms(tmp_path_factory):
    """A small cohort of phantoms, and their heads by number."""
    pytest.importorskip("torch", reason="needs torch")
    from MemorizationIndexLib.phantoms import make_patient

    folder = tmp_path_factory.mktemp("phantoms")
    heads = [make_patient(number, slices=5, size=64) for number in range(8)]
    volumes = [
        Volume(f"p{number}", f"p{number}", head, AFFINE, f"p{number}")
        for number, head in enumerate(heads)
    ]
    write_volumes(volumes, folder / "job" / "volumes")
    job = {"kind": "build", "path": str(folder / "cohort.micohort"), "encoder": "builtin"}
    messages, status, err = work(folder / "job", {**job, "thumbnails": True, "input_size": 64})
    assert status == 0, err
    assert messages[-1]["type"] == "finished"
    return Path(messages[-1]["path"]), heads


def query(name, array):
    return Volume(name, name, array, AFFINE, name)


def score_job(cohort, **changes):
    return {"kind": "score", "cohort": str(cohort), "alpha": 0.05, "device": "cpu", **changes}


def test_the_copies_are_found_and_told_volume_by_volume(phantoms, tmp_path):
    cohort, heads = phantoms
    from MemorizationIndexLib.phantoms import make_patient

    fresh = make_patient(99, slices=5, size=64)
    mixed = np.concatenate([np.zeros((1, 64, 64), np.float32), heads[3][:2], fresh[2:]])
    write_volumes([query("copy", heads[2]), query("mixed", mixed)], tmp_path / "job" / "volumes")
    messages, status, err = work(tmp_path / "job", score_job(cohort))
    assert status == 0, err
    kinds = [message["type"] for message in messages]
    assert kinds[0] == "started" and kinds[-1] == "finished" and kinds.count("volume") == 2
    partial = read_result(tmp_path / "job" / messages[kinds.index("volume")]["folder"])
    result = read_result(tmp_path / "job" / "result")
    assert {row.volume for row in partial.slices} == {"copy"}
    assert [row.oni for row in partial.slices] == [row.oni for row in result.slices[:5]]
    assert all(row.nearest_subject == "p2" for row in result.slices[:5])
    found = [row.verdict for row in result.slices[5:]]
    assert found[0] is Verdict.NOT_SCORED and Verdict.COPY not in found[3:]
    assert [row.nearest_subject for row in result.slices[6:8]] == ["p3", "p3"]
    reports = [m for m in messages if m["type"] == "progress" and m["stage"] == "Scoring"]
    assert reports[-1]["done"] == reports[-1]["total"] == 11
    assert [m["done"] for m in reports] == sorted(m["done"] for m in reports)


def test_volumes_one_by_one_give_what_all_at_once_give(phantoms, tmp_path):
    cohort, heads = phantoms
    from MemorizationIndexLib.audit import AuditOptions, score_volumes

    volumes = [query(f"q{n}", heads[n][::-1].copy() * 0.9) for n in range(3)]
    write_volumes(volumes, tmp_path / "job" / "volumes")
    _, status, err = work(tmp_path / "job", score_job(cohort))
    assert status == 0, err
    joined = read_result(tmp_path / "job" / "result")
    options = AuditOptions(alpha=0.05, device="cpu")
    whole = score_volumes(volumes, cohort, subject_rule=worker.SUBJECT_RULE, options=options)
    assert [(r.volume, r.slice, r.verdict) for r in joined.slices] == [
        (r.volume, r.slice, r.verdict) for r in whole.slices
    ]
    for name in ("similarity", "mi", "oni", "p_value", "q_value"):
        np.testing.assert_allclose(
            [getattr(r, name) for r in joined.slices],
            [getattr(r, name) for r in whole.slices],
            rtol=1e-5,
        )
    ignored = {"mean_oni", "created"}
    before, after = (
        {key: value for key, value in vars(r.summary).items() if key not in ignored}
        for r in (whole, joined)
    )
    assert after == before
    for before, after in zip(whole.volumes, joined.volumes, strict=True):
        assert (after.volume, after.copies, after.longest_run) == (
            before.volume,
            before.copies,
            before.longest_run,
        )
    np.testing.assert_allclose(joined.statistics, whole.statistics, rtol=1e-5)


def test_joined_results_are_those_of_all_volumes_at_once(phantoms):
    cohort_path, heads = phantoms
    from MemorizationIndexLib.audit import AuditOptions, score_volumes
    from MemorizationIndexLib.cohort import load_cohort
    from MemorizationIndexLib.joining import join

    cohort = load_cohort(cohort_path)
    volumes = [query(f"q{n}", heads[n] * (n != 1)) for n in range(3)]
    options = AuditOptions(alpha=0.05, device="cpu", verify=False)
    whole = score_volumes(volumes, cohort, options=options)
    joined = join([score_volumes([one], cohort, options=options) for one in volumes], cohort)
    for before, after in zip(whole.slices, joined.slices, strict=True):
        assert (after.volume, after.slice, after.verdict) == (
            before.volume,
            before.slice,
            before.verdict,
        )
        for name in ("similarity", "oni", "p_value", "q_value"):
            assert close(getattr(after, name), getattr(before, name)), name
    assert [vars(v)["copies"] for v in joined.volumes] == [vars(v)["copies"] for v in whole.volumes]
    for name, value in vars(whole.summary).items():
        if name != "created":
            assert close(getattr(joined.summary, name), value), name


@pytest.fixture(scope="module")
def copied(small_audit):
    """Volumes of image files: two of the cohort's own, altered, around one that is not in it."""
    from MemorizationIndexLib.images import find_images, read_source

    paths = [small_audit.reference / "p1", small_audit.queries / "q0", small_audit.reference / "p4"]
    volumes = []
    for number, path in enumerate(paths):
        (one,) = read_source(find_images([path]).sources[0])
        array = np.asarray(one.array, np.float32)[::-1] if number == 2 else one.array
        volumes.append(Volume(f"v{number}", f"v{number}", array, one.affine, f"v{number}"))
    return volumes


def told_by(job, folder, volumes=()):
    """Do a job in this process; returns what it tells."""
    if volumes:
        write_volumes(volumes, folder / "volumes")
    stream = io.StringIO()
    worker.JOBS[job["kind"]](job, folder, worker.Reporter(stream))
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_no_slice_is_matched_or_encoded_twice(small_audit, copied, tmp_path, monkeypatch):
    from MemorizationIndexLib import audit
    from MemorizationIndexLib.encoders.structure import StructureEncoder

    matched, encoded = [], []
    match, encode = audit._match, StructureEncoder.encode

    def counted_match(queries, *arguments):
        matched.append(queries.slice_count)
        return match(queries, *arguments)

    def counted_encode(encoder, pixels):
        encoded.append(len(pixels))
        return encode(encoder, pixels)

    monkeypatch.setattr(audit, "_match", counted_match)
    monkeypatch.setattr(StructureEncoder, "encode", counted_encode)
    monkeypatch.setenv("MEMORIZATION_INDEX_CACHE", str(tmp_path / "cache"))
    told_by(score_job(small_audit.cohort), tmp_path, copied)
    assert read_result(tmp_path / "result").summary.verification
    assert matched == [4, 4, 4] and sum(encoded) == 12


def test_matches_are_laid_over_as_in_one_run(small_audit, copied, tmp_path):
    from MemorizationIndexLib.audit import AuditOptions, score_volumes

    told_by(score_job(small_audit.cohort), tmp_path, copied)
    joined = read_result(tmp_path / "result")
    options = AuditOptions(alpha=0.05, device="cpu")
    whole = score_volumes(copied, small_audit.cohort, options=options)
    assert sum(row.verified is True for row in whole.slices) >= 4
    for name in ("verified", "ssim", "ncc", "pose"):
        for before, after in zip(whole.slices, joined.slices, strict=True):
            assert close(getattr(after, name), getattr(before, name)), name
    assert joined.summary.verification == whole.summary.verification
    for name in ("pictures", "reference_pictures", "match_pictures"):
        before, after = getattr(whole, name), getattr(joined, name)
        assert after.keys() == before.keys() and after, name


def test_only_the_most_suspicious_slices_of_all_are_pictured(small_audit, copied, monkeypatch):
    from MemorizationIndexLib import gallery, joining
    from MemorizationIndexLib.audit import AuditOptions, score_volumes
    from MemorizationIndexLib.cohort import load_cohort

    monkeypatch.setattr(gallery, "PICTURES", 10)
    monkeypatch.setattr(joining, "PICTURES", 10)
    cohort = load_cohort(small_audit.cohort)
    options = AuditOptions(alpha=0.05, device="cpu", verify=False)
    whole = score_volumes(copied, cohort, options=options)
    joined = joining.join([score_volumes([v], cohort, options=options) for v in copied], cohort)
    assert joined.pictures.keys() == whole.pictures.keys() and len(joined.pictures) == 10
    assert joined.reference_pictures.keys() == whole.reference_pictures.keys()


def test_every_stage_is_told_with_its_unit_and_every_note(small_audit, copied, tmp_path):
    told = told_by(score_job(small_audit.cohort), tmp_path / "score", copied)
    reports = [m for m in told if m["type"] == "progress"]
    units = {m["stage"]: m["unit"] for m in reports}
    assert units["Scoring"] == "slices" and units["Gathering pictures"] == "pictures"
    assert units["Reading the flagged slices"] == "volumes" and units["Verifying"] == "pairs"
    last = {m["stage"]: (m["done"], m["total"]) for m in reports}
    assert last["Scoring"] == (12, 12)
    assert last["Verifying"][0] == last["Verifying"][1] >= 8
    build = {"kind": "build", "inputs": [str(small_audit.reference)], "encoder": "builtin"}
    build |= {"path": str(tmp_path / "again.micohort"), "input_size": 96, "device": "cpu"}
    told = told_by(build, tmp_path)
    units = {m["stage"]: m["unit"] for m in told if m["type"] == "progress"}
    assert units["Calibrating the null"] == "slices" and units["Whitening"] == "layers"
    assert units["Trying known copies"] == "disguises"
    notes = [m["text"] for m in told if m["type"] == "note"]
    assert any("Encoder: builtin" in note for note in notes)


def test_slices_at_once_reach_mri_core_when_building_and_scoring(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch", reason="needs torch")
    from encoders.made_vit import dinov2, small_state
    from MemorizationIndexLib.cohort import building, load_cohort
    from MemorizationIndexLib.encoders import mri_core, weights

    torch.save({"teacher": dinov2(small_state(width=16, grid=4))}, tmp_path / "made.pth")
    monkeypatch.setenv(weights.WEIGHTS_VARIABLE, str(tmp_path / "made.pth"))
    monkeypatch.setenv("MEMORIZATION_INDEX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(building, "CONTROL_SLICES", 4)
    sizes = []
    encode = mri_core.MriCoreEncoder._encode_batch

    def counted(encoder, pixels):
        sizes.append(len(pixels))
        return encode(encoder, pixels)

    monkeypatch.setattr(mri_core.MriCoreEncoder, "_encode_batch", counted)
    rng = np.random.default_rng(0)
    volumes = [query(f"p{n}", rng.random((3, 32, 32)).astype(np.float32)) for n in range(6)]
    job = {"kind": "build", "path": str(tmp_path / "made.micohort"), "encoder": "mri-core"}
    job |= {"input_size": 64, "device": "cpu", "batch_size": 2, "plane": "axial"}
    told = told_by(job, tmp_path / "build", volumes)
    assert max(sizes) == 2 and not any("at once" in m.get("text", "") for m in told)
    assert "batch" not in load_cohort(tmp_path / "made.micohort").facts.encoder_options
    sizes.clear()
    wanted = [query("q", rng.random((7, 32, 32)).astype(np.float32))]
    job = score_job(tmp_path / "made.micohort", batch_size=3, plane="axial")
    told = told_by(job, tmp_path / "score", wanted)
    assert sizes == [3, 3, 1]
    notes = " ".join(m["text"] for m in told if m["type"] == "note")
    assert "Encoder: mri-core" in notes and "at once" not in notes


def test_where_slices_at_once_are_ignored_a_note_says_so(small_audit, copied, tmp_path):
    words = "The choice of 5 slices at once is for MRI-CORE; the built-in encoder has its own."
    job = score_job(small_audit.cohort, batch_size=5)
    told = told_by(job, tmp_path, copied[1:2])
    assert any(words in m["text"] for m in told if m["type"] == "note")
    build = {"kind": "build", "inputs": ["/none"], "encoder": "builtin", "batch_size": 5}
    stream = io.StringIO()
    with pytest.raises(ValueError, match="/none"):
        worker.build({**build, "path": "x"}, tmp_path, worker.Reporter(stream))
    assert words in stream.getvalue()


def close(one, other):
    """Equal, or for numbers nearly so: batches of other sizes round otherwise."""
    if isinstance(other, float):
        return one == pytest.approx(other, rel=1e-4)
    return one == other


def test_a_volume_that_cannot_be_used_does_not_lose_the_others(phantoms, tmp_path):
    cohort, heads = phantoms
    flat = Volume("flat", "flat", np.ones((0, 4, 4), np.float32), AFFINE, "flat")
    write_volumes([flat, query("good", heads[1])], tmp_path / "job" / "volumes")
    messages, status, err = work(tmp_path / "job", score_job(cohort))
    assert status == 0, err
    result = read_result(tmp_path / "job" / "result")
    assert {row.volume for row in result.slices} == {"good"}
    assert any("flat" in path for path, _ in result.summary.refused)
    assert any(m["type"] == "note" and "flat" in m["text"] for m in messages)


def test_slices_of_refused_volumes_are_not_waited_for(small_audit, copied, tmp_path):
    waves = Volume("waves", "waves", np.ones((9, 32, 32), np.complex64), AFFINE, "waves")
    told = told_by(score_job(small_audit.cohort), tmp_path, [waves, copied[1]])
    scoring = [m for m in told if m["type"] == "progress" and m["stage"] == "Scoring"]
    assert (scoring[-1]["done"], scoring[-1]["total"]) == (4, 4)


def test_blank_and_non_finite_slices_are_not_scored_and_break_nothing(phantoms, tmp_path):
    cohort, heads = phantoms
    array = heads[4].copy()
    array[0], array[1, :, :], array[2, :5, :5] = 0, np.nan, np.inf
    write_volumes([query("odd", array)], tmp_path / "job" / "volumes")
    _, status, err = work(tmp_path / "job", score_job(cohort))
    assert status == 0, err
    rows = read_result(tmp_path / "job" / "result").slices
    assert [row.verdict is Verdict.NOT_SCORED for row in rows][:2] == [True, True]
    assert all(np.isfinite(row.oni) for row in rows if row.oni is not None)
    assert rows[0].reason and rows[1].reason


def test_a_volume_of_blank_slices_only_is_a_result_not_an_error(phantoms, tmp_path):
    cohort, _ = phantoms
    write_volumes([query("blank", np.zeros((3, 8, 8)))], tmp_path / "job" / "volumes")
    _, status, err = work(tmp_path / "job", score_job(cohort))
    assert status == 0, err
    rows = read_result(tmp_path / "job" / "result").slices
    assert [row.verdict for row in rows] == [Verdict.NOT_SCORED] * 3


def test_everything_works_in_a_folder_named_mueller_and_patient(phantoms, tmp_path):
    cohort, heads = phantoms
    home = tmp_path / 'Müller 患者 "O\'Neil"'
    shutil.copytree(LIBRARY / "MemorizationIndexLib", home / "MemorizationIndexLib")
    shutil.copytree(cohort, home / "Kohorte 患者.micohort")
    name = "T1 \"post\" 'Gd' — 患者"
    write_volumes([query(name, heads[0])], home / "job" / "volumes")
    job = score_job(home / "Kohorte 患者.micohort")
    _, status, err = work(home / "job", job, library=home)
    assert status == 0, err
    assert read_result(home / "job" / "result").slices[0].volume == name


def test_what_a_library_prints_does_not_break_the_messages(tmp_path):
    prelude = (
        "from MemorizationIndexLib import worker\n"
        "import os, sys\n"
        "def noisy(*_):\n"
        "    print('printed'); os.write(1, b'written \\xff\\n'); return {}\n"
        "worker.JOBS['noisy'] = noisy"
    )
    messages, status, err = work(tmp_path / "job", {"kind": "noisy"}, prelude=prelude)
    assert status == 0 and messages[-1] == {"type": "finished"}
    assert "printed" in err and "written" in err


def test_a_sign_of_life_comes_while_nothing_else_does(tmp_path):
    prelude = (
        "import time\n"
        "from MemorizationIndexLib import worker\n"
        "worker.HEARTBEAT = 0.05\n"
        "worker.JOBS['slow'] = lambda *_: time.sleep(0.5) or {}"
    )
    messages, _, _ = work(tmp_path / "job", {"kind": "slow"}, prelude=prelude)
    assert sum(message["type"] == "alive" for message in messages) >= 3


def slow_worker(folder, heartbeat=2.0):
    (folder / "job.json").write_text('{"kind": "slow"}')
    code = (
        "import time\nfrom MemorizationIndexLib import worker\n"
        f"worker.HEARTBEAT = {heartbeat}\n"
        "worker.JOBS['slow'] = lambda *_: time.sleep(60)\n"
        f"worker.main([{str(folder)!r}])"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=LIBRARY, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert json.loads(process.stdout.readline())["type"] == "started"
    return process


def test_the_worker_ends_when_standard_input_closes(tmp_path):
    process = slow_worker(tmp_path)
    process.stdin.close()
    began = time.monotonic()
    assert process.wait(timeout=10) == 1 and time.monotonic() - began < 10
    process.stdout.close()


def test_standard_input_is_out_of_the_way_of_libraries(tmp_path):
    """On Windows a library that looks at standard input would wait behind the pending read."""
    prelude = (
        "import os, sys\n"
        "from MemorizationIndexLib import worker\n"
        "nothing = os.open(os.devnull, os.O_RDONLY)\n"
        "worker.JOBS['look'] = lambda *_: {'away': os.path.sameopenfile(0, nothing)}"
    )
    messages, status, err = work(tmp_path / "job", {"kind": "look"}, prelude=prelude)
    assert status == 0, err
    assert messages[-1]["away"] is True


def test_two_runs_in_one_folder_do_not_disturb_each_other(tmp_path):
    prelude = (
        "import time\n"
        "from pathlib import Path\n"
        "from MemorizationIndexLib import worker\n"
        "def slow(job, folder, reporter):\n"
        "    (folder / 'begun').touch()\n"
        "    until = time.monotonic() + 60\n"
        "    while not (folder / 'go on').exists() and time.monotonic() < until:\n"
        "        time.sleep(0.01)\n"
        "    return {}\n"
        "worker.JOBS['slow'] = slow"
    )
    folder, ended = tmp_path / "job", []
    first = threading.Thread(
        target=lambda: ended.append(work(folder, {"kind": "slow"}, prelude=prelude))
    )
    first.start()
    until = time.monotonic() + 60
    while not (folder / "begun").exists() and time.monotonic() < until:
        time.sleep(0.02)
    messages, status, _ = work(folder, {"kind": "slow"}, prelude=prelude)
    assert status == 1 and "Another run is at work" in messages[-1]["message"]
    assert messages[-1]["unexpected"] is False
    (folder / "go on").touch()
    first.join(60)
    assert ended[0][1] == 0 and ended[0][0][-1]["type"] == "finished"
    messages, status, _ = work(folder, {"kind": "slow"}, prelude=prelude)
    assert status == 0, "the folder is free again"


def test_phantoms_are_not_taken_away_from_another_run(tmp_path):
    from MemorizationIndexLib.locking import held

    place = tmp_path / "demo"
    place.mkdir()
    (place / "of the other").touch()
    with held(tmp_path / "demo.lock"), pytest.raises(worker.WorkerError, match="Another run"):
        told_by({"kind": "demo", "folder": str(place)}, tmp_path)
    assert (place / "of the other").exists()


def test_the_worker_ends_when_nobody_listens(tmp_path):
    process = slow_worker(tmp_path, heartbeat=0.05)
    process.stdout.close()
    assert process.wait(timeout=20) == 1
    process.stdin.close()


def test_a_failure_is_told_though_nobody_reads_the_complaints(tmp_path):
    prelude = (
        "import os\n"
        "from MemorizationIndexLib import worker\n"
        "def fail(*_):\n"
        "    read, write = os.pipe(); os.close(read); os.dup2(write, 2)\n"
        "    raise worker.WorkerError('It fails.')\n"
        "worker.JOBS['fail'] = fail"
    )
    messages, status, _ = work(tmp_path / "job", {"kind": "fail"}, prelude=prelude)
    assert status == 1 and messages[-1]["message"] == "It fails."


def test_every_choice_of_the_job_reaches_the_library(tmp_path, monkeypatch):
    from types import SimpleNamespace

    from MemorizationIndexLib import cohort

    taken = []

    def build(inputs, path, *, options, progress):
        taken.append((inputs, path, options))
        return SimpleNamespace(path=path, facts=SimpleNamespace(refused=[], warnings=["few"]))

    monkeypatch.setattr(cohort, "build_cohort", build)
    job = {"kind": "build", "inputs": ["a"], "path": "x", "encoder": "mri-core", "batch_size": 3}
    job |= {"input_size": 96, "device": "cpu", "protocol": "paper", "plane": "coronal"}
    job |= {"anonymize": True, "thumbnails": False}
    reporter = worker.Reporter(io.StringIO())
    assert worker.build(job, tmp_path, reporter)["warnings"] == ["few"]
    assert taken == [
        (
            ["a"],
            "x",
            cohort.building.CohortOptions(
                encoder="mri-core",
                encoder_options={"batch": 3},
                input_size=96,
                device="cpu",
                protocol="paper",
                plane="coronal",
                anonymize=True,
                thumbnails=False,
            ),
        )
    ]


def test_thousands_of_refused_inputs_pass_as_one_message(tmp_path, monkeypatch):
    from types import SimpleNamespace

    from MemorizationIndexLib import cohort

    refused = [(f"/a/long/path/to/{number}.dcm", "it is damaged " * 20) for number in range(9000)]
    facts = SimpleNamespace(refused=refused, warnings=[])
    built = SimpleNamespace(path="x", facts=facts)
    monkeypatch.setattr(cohort, "build_cohort", lambda *_, **__: built)
    stream = io.StringIO()
    returned = worker.build(
        {"kind": "build", "inputs": [], "path": "x", "encoder": "builtin"},
        tmp_path,
        worker.Reporter(stream),
    )
    assert len(json.dumps(returned)) < 100_000
    assert len(returned["refused"]) == 101 and returned["refused"][-1] == "and 8900 more"


@pytest.mark.parametrize(
    ("job", "words"),
    [
        ({"kind": "score", "cohort": "/none.micohort", "alpha": 0.01}, "no cohort at"),
        ({"kind": "build", "path": "x", "encoder": "builtin", "inputs": ["/none"]}, "/none"),
        ({"kind": "register weights", "path": "/none.pth"}, "/none.pth"),
    ],
)
def test_a_failure_is_one_sentence_and_no_defect(tmp_path, job, words):
    pytest.importorskip("torch", reason="needs torch")
    write_volumes([query("v", np.zeros((2, 4, 4)))], tmp_path / "job" / "volumes")
    messages, status, err = work(tmp_path / "job", job)
    assert status == 1 and messages[-1]["type"] == "failed"
    assert words in messages[-1]["message"] and messages[-1]["unexpected"] is False
    assert "Traceback" in err and "Traceback" not in messages[-1]["message"]


def test_an_unknown_job_is_a_defect_and_says_so(tmp_path):
    messages, status, _ = work(tmp_path / "job", {"kind": "cook"})
    assert status == 1 and messages[-1]["unexpected"] is True


@pytest.mark.parametrize(
    "break_it",
    [
        "raise ImportError('DLL load failed while importing _C')",
        "import missing_dll",
        "raise OSError(126, 'The specified module could not be found', 'c10.dll')",
        "raise AttributeError('_ARRAY_API not found')",
    ],
)
def test_a_broken_torch_is_told_with_its_remedy(tmp_path, break_it):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(break_it)
    prelude = f"import sys; sys.path.insert(0, {str(tmp_path)!r})"
    messages, status, _ = work(tmp_path / "job", {"kind": "check"}, prelude=prelude)
    assert status == 1
    assert "PyTorch Utils" in messages[-1]["message"]
    assert messages[-1]["unexpected"] is False


def test_the_check_runs_a_real_computation(tmp_path):
    pytest.importorskip("torch", reason="needs torch")
    messages, status, err = work(tmp_path / "job", {"kind": "check", "device": "cpu"})
    assert status == 0, err
    assert messages[-1]["device"] == "cpu" and "test computation" in messages[-1]["reason"]


@pytest.mark.parametrize(
    ("error", "words", "unexpected"),
    [
        (MemoryError(), "not enough memory", False),
        (OSError(28, "No space left on device", "/x"), "device (/x); free some space", False),
        (OSError(13, "Permission denied", "/x"), "Permission denied (/x).", False),
        (KeyError("x"), "KeyError", True),
        (ModuleNotFoundError("No module named 'torch'", name="torch"), "Setup", False),
    ],
)
def test_errors_in_words(error, words, unexpected):
    message, found = worker.explain(error)
    assert words in message and found is unexpected


def test_the_demo_makes_a_cohort_and_a_volume(tmp_path):
    pytest.importorskip("torch", reason="needs torch")
    pytest.importorskip("SimpleITK", reason="needs SimpleITK")
    place = tmp_path / "demo"
    (place / "volume").mkdir(parents=True)  # Left behind by an earlier demo.
    job = {"kind": "demo", "folder": str(place), "input_size": 64}
    job["numbers"] = {"patients": 8, "slices": 4, "size": 64}
    messages, status, err = work(tmp_path / "job", job)
    assert status == 0, err
    returned = messages[-1]
    assert Path(returned["cohort"]).is_dir()
    assert len(read_volumes(Path(returned["volume"]))[0].array) == 24
