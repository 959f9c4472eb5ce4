"""The experiment on phantoms: what it finds, resumes, refuses and leaves behind."""

from __future__ import annotations

import csv
import json
import shutil

import numpy as np
import pytest

from MemorizationIndexLib.evaluation import experiment as experiments
from MemorizationIndexLib.evaluation import tables
from MemorizationIndexLib.evaluation.dataset import read_slices
from MemorizationIndexLib.evaluation.experiment import ExperimentOptions, run_experiment
from MemorizationIndexLib.evaluation.features import EvaluationError
from MemorizationIndexLib.evaluation.figures import CAPTIONS
from MemorizationIndexLib.evaluation.trial import ALL, ALPHAS, CLEAN, LEVELS, SetRow
from MemorizationIndexLib.evaluation.writing import write_evaluation
from MemorizationIndexLib.phantoms import make_patient
from MemorizationIndexLib.progress import CancelledError
from MemorizationIndexLib.transformations import TRANSFORMATIONS
from shared_data import shared

SUBJECTS, SLICES = 14, 3
PROTOCOLS = ("calibrated", "paper", "reference")
OPTIONS = ExperimentOptions(protocols=PROTOCOLS, seeds=2, cache=False, replicates=40)


class SmallEncoder:
    """Gradients on two coarse grids: as blind to detail as it is quick."""

    name = "small"
    description = "a small encoder for tests"
    layers = ("fine", "coarse")
    widths = (256, 128)
    input_size = 64
    fingerprint = "small-64"

    def encode(self, pixels):
        along_y, along_x = np.gradient(pixels, axis=(1, 2))
        parts = [np.maximum(sign * g, 0) for g in (along_y, along_x) for sign in (1, -1)]
        channels = np.stack(parts, axis=1)
        fine = channels.reshape(-1, 4, 8, 8, 8, 8).mean(axis=(3, 5))
        coarse = np.stack([parts[0] + parts[1], parts[2] + parts[3]], axis=1)
        coarse = coarse.reshape(-1, 2, 8, 8, 8, 8).mean(axis=(3, 5))
        return tuple(
            np.sqrt(one.reshape(len(pixels), -1) + 1e-6).astype(np.float32)
            for one in (fine, coarse)
        )

    def flip(self, features, *, horizontal, vertical):
        flipped = []
        for rows, channels in zip(features, (4, 2), strict=True):
            cells = rows.reshape(-1, channels, 8, 8)
            cells = cells[:, :, :: -1 if vertical else 1, :: -1 if horizontal else 1]
            if channels == 4:
                order = [1, 0] if vertical else [0, 1]
                order += [3, 2] if horizontal else [2, 3]
                cells = cells[:, order]
            flipped.append(np.ascontiguousarray(cells).reshape(rows.shape))
        return tuple(flipped)


def test_the_small_encoder_knows_its_flips():
    encoder, pixels = SmallEncoder(), np.random.default_rng(0).random((3, 64, 64), np.float32)
    for horizontal, vertical in ((True, False), (False, True), (True, True)):
        turned = pixels[:, :: -1 if vertical else 1, :: -1 if horizontal else 1]
        expected = encoder.encode(turned)
        found = encoder.flip(encoder.encode(pixels), horizontal=horizontal, vertical=vertical)
        for one, other in zip(expected, found, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-5)


def make_data(folder, subjects=SUBJECTS, seed=0):
    for number in range(subjects):
        (folder / f"patient-{number:02d}").mkdir(parents=True)
        images = make_patient(seed + number, slices=SLICES + 4, size=64)[2 : 2 + SLICES]
        np.save(folder / f"patient-{number:02d}" / "slices.npy", images)
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    root = tmp_path_factory.mktemp("experiment")
    data = [make_data(root / "heads"), make_data(root / "more", seed=500)]
    out = root / "out"
    return data, out, run_experiment(data, out, options=OPTIONS, encoder=SmallEncoder())


def test_every_dataset_protocol_and_seed_is_tried(run):
    _, _, experiment = run
    found = [(one.dataset, one.protocol, one.seed) for one in experiment.trials]
    assert found == [
        (dataset, protocol, seed)
        for dataset in ("heads", "more")
        for protocol in OPTIONS.protocols
        for seed in (0, 1)
    ]
    assert experiment.reused == 0
    for trial in experiment.trials:
        assert (trial.reference_subjects, trial.test_subjects) == (7, 7)
        assert (trial.reference_slices, trial.test_slices) == (21, 21)
        assert trial.robust is (trial.protocol == "calibrated")


def test_copies_are_told_from_clean_slices_and_flips_too(run):
    _, _, experiment = run
    trials = [one for one in experiment.trials if one.protocol == "calibrated"]
    for trial in trials:
        rows = {row.condition: row for row in trial.conditions if row.cohort == ALL}
        assert list(rows) == [one.name for one in TRANSFORMATIONS]
        for name in ("exact", "noise_0.01", "horizontal_flip", "vertical_flip", "rotation_3"):
            assert rows[name].auc > 0.98, (trial.seed, name)
        for row in rows.values():
            assert (row.copies, row.clean) == (21, 21)
            assert row.auc_low <= row.auc <= row.auc_high
            assert 0 <= row.tpr_low <= row.tpr_high <= 1
        assert {row.cohort for row in trial.conditions} == {"5", ALL}


def test_false_positives_are_counted_on_clean_slices(run):
    _, _, experiment = run
    trial = experiment.trials[0]
    clean = [row for row in trial.verdicts if row.condition == CLEAN]
    assert {(row.cohort, row.alpha) for row in clean} == {
        (cohort, alpha) for cohort in ("5", ALL) for alpha in ALPHAS
    }
    for row in clean:
        assert row.slices == 21
        assert 0 <= row.called_copy <= row.flagged < 0.5
    exact = [row for row in trial.verdicts if row.condition == "exact" and row.cohort == ALL]
    assert all(row.flagged == 1.0 for row in exact)


def test_set_measures_follow_the_share_of_copies(run):
    _, _, experiment = run
    trial = experiment.trials[0]

    def value(condition, level, measure):
        (row,) = [
            row
            for row in trial.sets
            if (row.condition, row.level, row.measure) == (condition, level, measure)
        ]
        return row.value

    for measure in ("mean_mi", "mean_oni", "flagged", "fid", "kid", "authpct", "vendi", "c_t"):
        value(CLEAN, 0.0, measure)
    ladder = [value(CLEAN if level == 0 else "exact", level, "mean_mi") for level in (0.0, *LEVELS)]
    assert ladder == sorted(ladder)
    assert value("exact", 0.45, "authpct") < value(CLEAN, 0.0, "authpct")
    assert value("exact", 0.45, "fid") < value(CLEAN, 0.0, "fid")
    truth = {row.level: row.true_share for row in trial.sets}
    assert truth[0.45] == pytest.approx(9 / 21)


def test_a_protocol_that_is_undefined_says_so_and_invents_no_number(run):
    _, _, experiment = run
    for trial in experiment.trials:
        if trial.protocol == "calibrated":
            continue
        assert any("has no null" in note or "undefined" in note for note in trial.notes)
        assert json.dumps([vars(row) for row in trial.conditions], allow_nan=False)


def test_a_finished_trial_is_not_run_again(run, monkeypatch):
    data, out, experiment = run
    monkeypatch.setattr(experiments, "encode_set", lambda *_: pytest.fail("encoded again"))
    again = run_experiment(data, out, options=OPTIONS, encoder=SmallEncoder())
    assert again.trials == experiment.trials
    assert again.reused == len(again.trials)


@pytest.mark.parametrize("change", ["damaged", "other key", "missing"])
def test_only_a_trial_that_is_gone_or_of_other_options_is_run(run, monkeypatch, change):
    data, out, experiment = run
    path = out / "trials" / "heads-calibrated-1.json"
    text = path.read_text()
    if change == "damaged":
        path.write_text(text[: len(text) // 2])
    elif change == "other key":
        path.write_text(text.replace(json.loads(text)["key"], "0" * 64))
    else:
        path.unlink()
    ran = []
    original = experiments.run_trial

    def spy(*given, **more):
        ran.append(given[1].name)
        return original(*given, **more)

    monkeypatch.setattr(experiments, "run_trial", spy)
    again = run_experiment(data, out, options=OPTIONS, encoder=SmallEncoder())
    assert ran == ["calibrated"]
    assert again.reused == len(again.trials) - 1
    assert again.trials == experiment.trials
    assert path.read_text() == text


def test_the_key_knows_images_encoder_and_search(run, tmp_path):
    data, out, _ = run
    options, encoder = ExperimentOptions(seeds=1, cache=False, replicates=40), SmallEncoder()
    out = shutil.copytree(out, tmp_path / "out")
    assert run_experiment(data[:1], out, options=options, encoder=encoder).reused == 1
    plain = ExperimentOptions(seeds=1, cache=False, robust=False)
    assert run_experiment(data[:1], out, options=plain, encoder=encoder).reused == 0
    encoder.fingerprint = "small-64, other weights"
    assert run_experiment(data[:1], out, options=plain, encoder=encoder).reused == 0
    other = make_data(tmp_path / "heads", subjects=10, seed=900)
    assert run_experiment([other], out, options=plain, encoder=encoder).reused == 0


def test_tables_and_figures_are_written_whole(run):
    _, out, experiment = run
    page = write_evaluation(experiment, out)
    text = page.read_text(encoding="utf-8")
    assert "a small encoder for tests" in text
    assert "nan" not in text.lower().replace("nant", "")
    for table in tables.all_tables(experiment):
        rows = list(csv.reader((out / "tables" / f"{table.name}.csv").open(encoding="utf-8")))
        assert rows[0] == list(table.columns)
        assert len(rows) == len(table.rows) + 1
        assert all(len(row) == len(rows[0]) for row in rows)
        assert table.title in (out / "tables" / f"{table.name}.md").read_text(encoding="utf-8")
    names = {path.stem for path in (out / "figures").iterdir()}
    assert names == {
        "detection", "verdicts", "false_positives", "set_levels", "spread", "cohort_sizes",
    }  # fmt: skip
    for name in names:
        assert f"![{name}](figures/{name}.png)\n\n{CAPTIONS[name]}\n" in text
    for path in (out / "figures").iterdir():
        start = path.read_bytes()[:8]
        assert path.stat().st_size > 2000
        magic = {".png": b"\x89PNG", ".pdf": b"%PDF", ".svg": b"<?xml"}
        assert start.startswith(magic[path.suffix])


def test_measured_numbers_stand_beside_the_published(run):
    _, _, experiment = run
    table = tables.detection(experiment)
    column = table.columns.index
    rows = {row[column("condition")]: row for row in table.rows if row[1] == "calibrated"}
    assert rows["vertical_flip"][column("published AUC")] == 0.727
    assert rows["vertical_flip"][column("published least")] == 0.635
    assert rows["gamma"][column("published AUC")] is None
    spread = tables.spread_over_datasets(experiment)
    (row,) = [r for r in spread.rows if r[:3] == ("calibrated", "C_T", 0.45)]
    assert row[-1] == 0.229


def test_spread_is_free_of_scale():
    values = [1.0, 2.0, 3.0]
    assert tables.variation(values) == pytest.approx(np.std(values) / 2)
    assert tables.variation([1000 * v for v in values]) == pytest.approx(tables.variation(values))
    assert tables.variation([-1.0, 1.0]) is None
    assert tables.variation([5.0]) is None
    assert tables.variation([]) is None
    assert tables.mean([None, 2.0, None]) == 2.0
    assert tables.mean([None]) is None


def test_what_is_allowed_is_what_the_null_can_certify():
    assert tables.allowed_rate(0.05, 19) == pytest.approx(0.1)
    assert tables.allowed_rate(0.01, 10) == pytest.approx(2 / 11)


def test_coverage_counts_intervals_that_hold_the_truth(run):
    _, _, experiment = run
    table = tables.shares(experiment)
    sets = {row[2]: row for row in table.rows if row[:2] == ("heads", "calibrated")}
    assert sets[0.45][3] == 2 * len(TRANSFORMATIONS)
    for level, row in sets.items():
        assert 0 <= row[table.columns.index("holds planted")] <= 1
        coverage = row[table.columns.index("coverage")]
        assert coverage is None if level == 0 else 0 <= coverage <= 1
    by_chance = [
        row.value for t in experiment.trials for row in t.sets if row.measure == "share_coverage"
    ]
    assert np.mean(by_chance) > 0.8


def test_a_cancelled_run_keeps_finished_trials(tmp_path):
    data = make_data(tmp_path / "data")
    options = ExperimentOptions(seeds=3, cache=False, replicates=40)
    seen = []

    def cancelled():
        return bool(list((tmp_path / "out" / "trials").glob("*.json")))

    with pytest.raises(CancelledError):
        run_experiment(
            [data],
            tmp_path / "out",
            options=options,
            encoder=SmallEncoder(),
            progress=seen.append,
            cancelled=cancelled,
        )
    assert len(list((tmp_path / "out" / "trials").iterdir())) == 1
    assert {one.stage for one in seen} == {"Reading data", "Encoding data", "Trying data"}
    assert all(0 <= one.done <= one.total or one.total == 0 for one in seen)


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        ([], {}, "0 datasets"),
        (["few"], {"seeds": 0}, "0 seeds"),
        (["few"], {"protocols": ()}, "0 protocols"),
        (["few"], {}, "9 subjects cannot be split"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(tmp_path, data, options, message):
    make_data(tmp_path / "few", subjects=9)
    given = ExperimentOptions(**options)
    with pytest.raises(EvaluationError, match=message):
        run_experiment(
            [tmp_path / name for name in data],
            tmp_path / "out",
            options=given,
            encoder=SmallEncoder(),
        )


def test_a_place_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "out").write_text("here already")
    data = make_data(tmp_path / "data", subjects=10)
    with pytest.raises(EvaluationError, match="cannot be written"):
        run_experiment([data], tmp_path / "out", encoder=SmallEncoder())


def test_slices_of_a_subject_are_taken_evenly(tmp_path):
    folder = tmp_path / "data" / "one"
    folder.mkdir(parents=True)
    images = make_patient(1, slices=20, size=64)[4:16]
    np.save(folder / "slices.npy", images)
    every = read_slices(folder.parent, "x", 64)
    few = read_slices(folder.parent, "x", 64, slices_per_subject=4)
    assert len(every.pixels) == 12
    np.testing.assert_array_equal(few.pixels, every.pixels[[1, 4, 7, 10]])
    assert every.digest != few.digest


def test_equal_folder_names_are_told_apart(tmp_path):
    assert experiments._dataset_names(["a/brain", "b/brain", tmp_path / "knee" / "manifest.csv"]) \
        == ["brain", "brain 2", "knee"]  # fmt: skip


def test_set_rows_survive_being_stored(run):
    _, out, experiment = run
    content = json.loads((out / "trials" / "heads-calibrated-0.json").read_text())
    stored = tuple(SetRow(**row) for row in content["trial"]["sets"])
    assert stored == experiment.trials[0].sets


def test_real_knees(tmp_path):
    data = shared("data", "slices", "knee")
    options = ExperimentOptions(encoder="builtin", seeds=1, cache=False, replicates=40)
    (trial,) = run_experiment([data], tmp_path / "out", options=options).trials
    for row in trial.conditions:
        if row.cohort == ALL:
            assert row.auc >= 0.99, row.condition
    for row in trial.verdicts:
        if row.condition == CLEAN and row.cohort == ALL:
            assert row.flagged <= 3 * tables.allowed_rate(row.alpha, row.subjects)
