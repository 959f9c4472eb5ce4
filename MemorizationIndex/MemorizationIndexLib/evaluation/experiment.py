"""The paper's experiment done right, on any folders with subjects (METHOD.md section 5)."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from MemorizationIndexLib.encoders.cache import CachedEncoder, open_cache
from MemorizationIndexLib.encoders.encoder import Encoder, FlippingEncoder
from MemorizationIndexLib.encoders.registry import AUTO, get_encoder
from MemorizationIndexLib.evaluation.dataset import EncodedSet, SliceSet, encode_set, read_slices
from MemorizationIndexLib.evaluation.features import EvaluationError
from MemorizationIndexLib.evaluation.splits import split_subjects
from MemorizationIndexLib.evaluation.trial import (
    ALPHAS,
    COHORT_SIZES,
    LEVELS,
    REPLICATES,
    ConditionRow,
    SetRow,
    Trial,
    VerdictRow,
    cohort_steps,
    run_trial,
)
from MemorizationIndexLib.index.poses import query_views, reference_poses
from MemorizationIndexLib.index.protocols import Protocol, get_protocol
from MemorizationIndexLib.progress import (
    CancelFunction,
    Progress,
    ProgressFunction,
    check,
    never,
    quiet,
)
from MemorizationIndexLib.transformations import TRANSFORMATIONS
from MemorizationIndexLib.version import __version__

TRIALS = "trials"
"""Folder of finished trials, inside the folder of results."""

_FORMAT = 1
_DISGUISE_SEED = 0


@dataclass(frozen=True)
class ExperimentOptions:
    """How the experiment is run; the defaults are those of the command line.

    Attributes:
        encoder: As for ``encoders.get_encoder``.
        input_size: Side of the slices in pixels; the encoder's own if None.
        device: Where the encoder runs.
        protocols: Keys of ``protocols.PROTOCOLS``; run side by side.
        seeds: Number of splits of each dataset.
        plane: A key of ``images.PLANES``.
        robust: Whether flips and small changes are searched where a protocol allows it; if None,
            where the encoder flips features for nothing.
        slices_per_subject: Most slices of one subject; neighbors add cost and little else.
        replicates: Resamples of subjects behind each interval.
        cache: Whether features are kept for the next run.
    """

    encoder: str = AUTO
    input_size: int | None = None
    device: str = "auto"
    protocols: tuple[str, ...] = ("calibrated",)
    seeds: int = 5
    plane: str = "auto"
    robust: bool | None = None
    slices_per_subject: int | None = 20
    replicates: int = REPLICATES
    cache: bool = True


@dataclass(frozen=True)
class DatasetFacts:
    """What a dataset was.

    Attributes:
        name: Name of the dataset.
        subjects: Number of subjects.
        slices: Number of scorable slices used.
        subject_rule: How the subjects were identified.
        refused: Inputs that were not read, as (path, sentence).
        warnings: Sentences the user must know.
    """

    name: str
    subjects: int
    slices: int
    subject_rule: str
    refused: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Experiment:
    """All trials, with what they were run on.

    Attributes:
        datasets: One per dataset.
        trials: By dataset, protocol and seed.
        encoder: Name of the encoder.
        encoder_description: The encoder in one honest sentence.
        fingerprint: The encoder's fingerprint.
        reused: Trials taken from an earlier run.
    """

    datasets: tuple[DatasetFacts, ...]
    trials: tuple[Trial, ...]
    encoder: str
    encoder_description: str
    fingerprint: str
    reused: int


def run_experiment(
    data: Sequence[str | Path],
    folder: str | Path,
    *,
    subjects: str | None = None,
    options: ExperimentOptions | None = None,
    encoder: Encoder | None = None,
    progress: ProgressFunction = quiet,
    cancelled: CancelFunction = never,
) -> Experiment:
    """Run every dataset × protocol × seed that is not done yet.

    Args:
        data: One folder, file or manifest.csv per dataset.
        folder: Where finished trials are kept; those found there with the same encoder, images and
            options are not run again.
        subjects: Pattern that finds the subject in a path; see ``images.find_images``.
        options: How to run it.
        encoder: The encoder, if it is at hand; ``options`` name it otherwise.
        progress: Told of the progress.
        cancelled: Asked between batches and between parts of a trial.

    Raises:
        EvaluationError: No dataset, no seed, too few subjects, or the folder cannot be written.
        ImageError: A dataset holds no usable image.
        EncoderError: The encoder cannot be used.
        CalibrationError: A protocol is unknown.
        CancelledError: ``cancelled`` said so; finished trials are kept.
    """
    options = options or ExperimentOptions()
    if not data or options.seeds < 1 or not options.protocols:
        raise EvaluationError(
            f"The experiment has {len(data)} datasets, {options.seeds} seeds and "
            f"{len(options.protocols)} protocols; give at least one of each."
        )
    protocols = [get_protocol(name) for name in dict.fromkeys(options.protocols)]
    names = _dataset_names(data)
    kept = _trial_folder(folder)
    if encoder is None:
        encoder = get_encoder(options.encoder, input_size=options.input_size, device=options.device)
    facts, trials, reused = [], [], 0
    for place, name in zip(data, names, strict=True):
        check(cancelled)
        progress(Progress(f"Reading {name}", 0, 0, "slices"))
        slices = read_slices(
            place,
            name,
            encoder.input_size,
            subjects=subjects,
            plane=options.plane,
            slices_per_subject=options.slices_per_subject,
        )
        split_subjects(len(slices.subject_names), 0)
        facts.append(
            DatasetFacts(
                name,
                len(slices.subject_names),
                len(slices.pixels),
                slices.subject_rule,
                slices.refused,
                slices.warnings,
            )
        )
        job = _Job(slices, encoder, protocols, options, kept)
        found = job.run(progress, cancelled)
        trials += found
        reused += job.reused
    return Experiment(
        tuple(facts),
        tuple(trials),
        encoder.name,
        encoder.description,
        encoder.fingerprint,
        reused,
    )


class _Job:
    """The trials of one dataset; its slices are encoded only if a trial is missing."""

    def __init__(
        self,
        slices: SliceSet,
        encoder: Encoder,
        protocols: Sequence[Protocol],
        options: ExperimentOptions,
        folder: Path,
    ) -> None:
        self.slices, self.encoder, self.protocols = slices, encoder, protocols
        self.options, self.folder = options, folder
        searched = options.robust
        if searched is None:
            searched = isinstance(encoder, FlippingEncoder)
        self.robust = {protocol.name: searched and protocol.robust for protocol in protocols}
        self.reused = 0

    def run(self, progress: ProgressFunction, cancelled: CancelFunction) -> list[Trial]:
        wanted = [
            (protocol, seed) for protocol in self.protocols for seed in range(self.options.seeds)
        ]
        trials: dict[tuple[str, int], Trial] = {}
        for protocol, seed in wanted:
            earlier = _load(self._path(protocol, seed), self._key(protocol, seed))
            if earlier is not None:
                trials[protocol.name, seed] = earlier
        self.reused = len(trials)
        missing = [(p, seed) for p, seed in wanted if (p.name, seed) not in trials]
        if missing:
            encoded = self._encode(progress, cancelled)
            steps = cohort_steps(encoded.subject_count, len(TRANSFORMATIONS))
            done, total = 0, steps * len(missing)

            def step(what: str) -> None:
                nonlocal done
                check(cancelled)
                progress(Progress(f"Trying {self.slices.name}", done, total, "steps"))
                done += 1

            for protocol, seed in missing:
                robust = self.robust[protocol.name]
                trial = run_trial(
                    encoded,
                    protocol,
                    seed,
                    robust=robust,
                    views=query_views(self.encoder, robust=robust),
                    encoder=self.encoder.name,
                    fingerprint=self.encoder.fingerprint,
                    replicates=self.options.replicates,
                    step=step,
                )
                _save(trial, self._path(protocol, seed), self._key(protocol, seed))
                trials[protocol.name, seed] = trial
            progress(Progress(f"Trying {self.slices.name}", total, total, "steps"))
        return [trials[protocol.name, seed] for protocol, seed in wanted]

    def _encode(self, progress: ProgressFunction, cancelled: CancelFunction) -> EncodedSet:
        poses = reference_poses(self.encoder, robust=any(self.robust.values()))
        with CachedEncoder(
            self.encoder, open_cache(limit=None if self.options.cache else 0)
        ) as cached:
            return encode_set(self.slices, cached, poses, _DISGUISE_SEED, progress, cancelled)

    def _path(self, protocol: Protocol, seed: int) -> Path:
        safe = re.sub(r"[^\w.-]+", "_", self.slices.name)
        return self.folder / f"{safe}-{protocol.name}-{seed}.json"

    def _key(self, protocol: Protocol, seed: int) -> str:
        content = {
            "format": _FORMAT,
            "version": __version__,
            "dataset": self.slices.name,
            "slices": self.slices.digest,
            "fingerprint": self.encoder.fingerprint,
            "protocol": protocol.name,
            "robust": self.robust[protocol.name],
            "seed": seed,
            "replicates": self.options.replicates,
            "disguises": [one.name for one in TRANSFORMATIONS],
            "levels": LEVELS,
            "alphas": ALPHAS,
            "cohorts": COHORT_SIZES,
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _dataset_names(data: Sequence[str | Path]) -> list[str]:
    """Name every dataset after its folder or file, and tell equal names apart."""
    names: list[str] = []
    for place in data:
        path = Path(place).expanduser().absolute()
        stem = path.parent.name if path.name == "manifest.csv" else path.name.split(".")[0]
        name, number = stem or "data", 2
        while name in names:
            name, number = f"{stem} {number}", number + 1
        names.append(name)
    return names


def _trial_folder(folder: str | Path) -> Path:
    path = Path(folder) / TRIALS
    with _writing(path):
        path.mkdir(parents=True, exist_ok=True)
    return path


def _load(path: Path, key: str) -> Trial | None:
    """Return an earlier trial of the same key; a file that is not one is run anew."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(content, dict) or content.get("key") != key:
        return None
    trial: dict[str, Any] = content["trial"]
    return Trial(
        **{
            **trial,
            "conditions": tuple(ConditionRow(**row) for row in trial["conditions"]),
            "verdicts": tuple(VerdictRow(**row) for row in trial["verdicts"]),
            "sets": tuple(SetRow(**row) for row in trial["sets"]),
            "notes": tuple(trial["notes"]),
        }
    )


def _save(trial: Trial, path: Path, key: str) -> None:
    text = json.dumps({"key": key, "trial": dataclasses.asdict(trial)}, allow_nan=False, indent=0)
    with _writing(path):
        part = path.with_suffix(".part")
        part.write_text(text, encoding="utf-8")
        part.replace(path)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise EvaluationError(
            f"{path} cannot be written ({error.strerror or error}); choose another place with "
            "--out."
        ) from error
