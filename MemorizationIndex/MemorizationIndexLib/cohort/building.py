"""Real training images → a cohort: encode, whiten, and calibrate with null and known copies."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import math
import secrets
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from MemorizationIndexLib.cohort.cohort import Cohort, CohortFacts
from MemorizationIndexLib.cohort.parts import PartGatherer, check_parts
from MemorizationIndexLib.cohort.pictures import PictureSources, pixel_digest, read_pictures
from MemorizationIndexLib.cohort.store import (
    FORMAT_VERSION,
    CohortWriter,
    cohort_path,
    load_cohort,
    writing,
)
from MemorizationIndexLib.comparison.apart import VERSION, PatientsApart
from MemorizationIndexLib.comparison.errors import ComparisonError
from MemorizationIndexLib.comparison.nearest_pairs import NearestPair, nearest_pairs
from MemorizationIndexLib.comparison.part_reference import part_fingerprint
from MemorizationIndexLib.comparison.patients_apart import lay_apart
from MemorizationIndexLib.comparison.placement import Pixels
from MemorizationIndexLib.encoders.cache import CachedEncoder, open_cache
from MemorizationIndexLib.encoders.encoder import Encoder, FlippingEncoder
from MemorizationIndexLib.encoders.registry import (
    AUTO,
    choice_sentences,
    get_encoder,
    options_to_remake,
    resolve_encoder,
)
from MemorizationIndexLib.encoding import encode_slices
from MemorizationIndexLib.images.finding import find_images
from MemorizationIndexLib.images.slicing import PLANES, count_slices
from MemorizationIndexLib.images.streaming import Refuse, stream_images, stream_volumes
from MemorizationIndexLib.images.volume import ImageError, Slice, Volume
from MemorizationIndexLib.index import published
from MemorizationIndexLib.index.control import CONTROL_SLICES, Control, balanced_sample
from MemorizationIndexLib.index.matching import Matcher, make_matcher
from MemorizationIndexLib.index.null import (
    Null,
    cross_fitted_null,
    half_split_null,
    subject_folds,
)
from MemorizationIndexLib.index.poses import Pose, query_views, reference_poses
from MemorizationIndexLib.index.protocols import CalibrationError, Protocol, get_protocol
from MemorizationIndexLib.index.reference import Reference, Views, fit_whiteners
from MemorizationIndexLib.index.scores import LEAST_SPREAD, null_spread
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

THUMBNAIL = 96
"""Side of a stored picture in pixels."""

LEAST_SLICES = 4
"""Fewest slices that can be halved into a null."""

_COPIED_AT_ONCE = 2048


@dataclass(frozen=True)
class CohortOptions:
    """How a cohort is built; the defaults are those of the command line.

    Attributes:
        encoder: As for ``encoders.get_encoder``.
        encoder_options: Further options of the encoder.
        input_size: Side of the slices in pixels; the encoder's own if None.
        device: Where the encoder runs.
        protocol: A key of ``protocols.PROTOCOLS``.
        plane: A key of ``images.PLANES``.
        seed: Of folds and known copies.
        robust: Whether flips and small changes are searched; if None, where the protocol allows
            it and the encoder flips features for nothing.
        anonymize: Whether subject and volume names are stored as salted hashes.
        thumbnails: Whether small pictures are stored.
        cache: Whether features are kept for the next run.
        parts: Whether copied parts can be searched, for which reduced pictures are stored.
    """

    encoder: str = AUTO
    encoder_options: dict[str, str] = field(default_factory=dict)
    input_size: int | None = None
    device: str = "auto"
    protocol: str = "calibrated"
    plane: str = "auto"
    seed: int = 0
    robust: bool | None = None
    anonymize: bool = False
    thumbnails: bool = False
    cache: bool = True
    parts: bool = False


@dataclass(frozen=True)
class _Material:
    """Where the slices come from and what was learned while finding them."""

    stream: Callable[[str, int, Refuse], Iterable[Slice]]
    subjects: frozenset[str]
    slice_count: int
    subject_rule: str
    refused: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = ()


def build_cohort(
    inputs: str | Path | Sequence[str | Path],
    path: str | Path,
    *,
    subjects: str | None = None,
    any_modality: bool = False,
    options: CohortOptions | None = None,
    progress: ProgressFunction = quiet,
    cancelled: CancelFunction = never,
) -> Cohort:
    """Build a cohort from image files and put it at ``path``.

    Args:
        inputs: Files, folders or a manifest.csv; see ``images.find_images``.
        path: Where the cohort shall lie; ``.micohort`` is added if it is missing. A cohort that
            lies there is replaced when the new one is whole.
        subjects: Pattern that finds the subject in a path; see ``images.find_images``.
        any_modality: Whether DICOM series other than MR are taken too.
        options: How to build it.
        progress: Told of the progress.
        cancelled: Asked between batches.

    Raises:
        ImageError: The inputs hold no usable image.
        EncoderError: The encoder cannot be used.
        CalibrationError: There are too few subjects or slices, or the protocol is unknown.
        CohortError: The cohort cannot be written.
        CancelledError: ``cancelled`` said so; features encoded by then are in the cache.
    """
    progress(Progress("Finding images", 0, 0, "files"))
    images = find_images(
        [inputs] if isinstance(inputs, (str, Path)) else inputs,
        subjects=subjects,
        any_modality=any_modality,
    )
    if not images.sources:
        raise ImageError(nothing_left(images.refused))
    material = _Material(
        lambda plane, size, refuse: stream_images(images, plane, size, refuse),
        frozenset(source.subject for source in images.sources),
        sum(source.slice_count for source in images.sources),
        images.subject_rule_sentence,
        images.refused,
        images.warnings,
    )
    return _build(material, path, options or CohortOptions(), progress, cancelled)


def build_cohort_from_volumes(
    volumes: Sequence[Volume],
    path: str | Path,
    *,
    subject_rule: str = "as given with the volumes",
    options: CohortOptions | None = None,
    progress: ProgressFunction = quiet,
    cancelled: CancelFunction = never,
) -> Cohort:
    """Build a cohort from volumes in memory; see ``build_cohort``.

    Args:
        volumes: With unique names; their ``subject`` decides the calibration.
        path: Where the cohort shall lie.
        subject_rule: How the subjects were identified, for the report.
        options: How to build it.
        progress: Told of the progress.
        cancelled: Asked between batches.
    """
    options = options or CohortOptions()
    material = _Material(
        lambda plane, size, refuse: stream_volumes(volumes, plane, size, refuse),
        frozenset(volume.subject for volume in volumes),
        sum(expected_slices(volume, options.plane) for volume in volumes),
        f"{len({v.subject for v in volumes})} subjects, {subject_rule}",
    )
    return _build(material, path, options, progress, cancelled)


def expected_slices(volume: Volume, plane: str) -> int:
    """Return the number of slices a volume will be cut into, 0 if it cannot be cut."""
    if volume.planar:
        return len(volume.array)
    size = (volume.array.shape[2], volume.array.shape[1], volume.array.shape[0])
    try:
        return count_slices(size, volume.affine, plane)
    except ImageError:
        return 0


def search_is_robust(robust: bool | None, protocol: Protocol, encoder: Encoder) -> bool:
    """Decide whether flips and small changes are searched.

    Raises:
        CalibrationError: They are asked for under a protocol that knows none.
    """
    if robust and not protocol.robust:
        raise CalibrationError(
            f"The protocol {protocol.name} compares slices as they are: leave out --robust, or use "
            "--protocol calibrated."
        )
    if robust is None:
        return protocol.robust and isinstance(encoder, FlippingEncoder)
    return robust


def thumbnail(pixels: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Return a small picture, uint8 (THUMBNAIL, THUMBNAIL), of a normalised slice."""
    picture = Image.fromarray((pixels * 255).round().astype(np.uint8))
    return np.asarray(picture.resize((THUMBNAIL, THUMBNAIL), Image.Resampling.BILINEAR))


def _build(
    material: _Material,
    path: str | Path,
    options: CohortOptions,
    progress: ProgressFunction,
    cancelled: CancelFunction,
) -> Cohort:
    protocol = get_protocol(options.protocol)
    path = cohort_path(path)
    if options.seed < 0:
        raise CalibrationError(f"The seed is {options.seed} and must be 0 or more.")
    if options.plane not in PLANES:
        raise ImageError(f"There is no plane '{options.plane}': choose one of {', '.join(PLANES)}.")
    if options.parts:
        check_parts(protocol)
    if protocol.null == "subjects":
        # Before hours of encoding, not after them.
        subject_folds(len(material.subjects), np.random.default_rng(0))
    check(cancelled)
    progress(Progress("Loading the encoder", 0, 0, ""))
    name = resolve_encoder(options.encoder)
    encoder = get_encoder(
        name, input_size=options.input_size, device=options.device, **options.encoder_options
    )
    note = choice_sentences(options.encoder, encoder)
    progress(Progress("Loading the encoder", 0, 0, "", note))
    robust = search_is_robust(options.robust, protocol, encoder)
    poses = reference_poses(encoder, robust=robust)
    with (
        writing(path) as writer,
        CachedEncoder(encoder, open_cache(limit=None if options.cache else 0)) as cached,
    ):
        gathered = _gather(material, writer, cached, poses, options, progress, cancelled)
        names, code_of = _subject_codes(gathered, options.anonymize)
        codes = np.array([code_of[name] for name in gathered.subjects], np.int64)
        order = np.argsort(codes, kind="stable")
        codes = codes[order]
        if protocol.null == "subjects":
            subject_folds(len(names), np.random.default_rng(0))
        elif len(codes) < LEAST_SLICES:
            raise CalibrationError(
                f"The reference has {len(codes)} scorable slices and the protocol "
                f"{protocol.name} needs at least {LEAST_SLICES}: add images."
            )
        progress(Progress("Whitening", 0, len(encoder.layers), "layers"))
        features = _ordered_features(gathered, writer, encoder, len(poses), order)
        whiteners = fit_whiteners(features, protocol)
        rows = []
        for number, (layer, whitener) in enumerate(zip(encoder.layers, whiteners, strict=True)):
            check(cancelled)
            raw = features[number]
            white = writer.mapped(f"rows.{layer}", raw.shape, np.float32)
            for pose in range(len(poses)):
                for start in range(0, raw.shape[1], _COPIED_AT_ONCE):
                    part = slice(start, start + _COPIED_AT_ONCE)
                    white[pose, part] = whitener.whiten(raw[pose, part])
            writer.whitener(layer, whitener)
            rows.append(white)
            progress(Progress("Whitening", number + 1, len(encoder.layers), "layers"))
        reference = Reference(tuple(rows), codes, len(names), whiteners)
        views = query_views(encoder, robust=robust)
        null = _null(
            reference, features, protocol, options.seed, code_of, views, progress, cancelled
        )
        match = make_matcher(reference, features, protocol, views)
        control = _control(
            gathered.keeper, code_of, match, cached, options.seed, progress, cancelled
        )
        if gathered.parts is not None:
            kept, pixels = gathered.keeper.drawn()
            gathered.parts.write(
                features,
                order,
                codes,
                _fold_of_subject(code_of, options.seed),
                ([code_of[name] for name in kept], pixels),
                options.seed,
                _telling("Calibrating copied parts", "folds", progress, cancelled),
            )
        apart = None
        # Hashed names go without paths, so that no match can be laid over anything.
        if not options.anonymize and any(gathered.sources):
            pairs = nearest_pairs(reference, features, options.seed, poses, views)
            apart = _patients_apart(pairs, gathered, order, encoder, options, progress, cancelled)
        volumes, volume_codes = _volume_codes(gathered, order, options.anonymize)
        _write_arrays(writer, gathered, order, codes, volume_codes, null, control, options)
        if apart is not None:
            writer.array("apart.ssim", apart.ssim)
            writer.array("apart.ncc", apart.ncc)
        shutil.rmtree(writer.folder / "spool")
        warnings = list(() if options.anonymize else material.warnings)
        warnings += _undefined(protocol, reference, null)
        refused = [*material.refused, *gathered.refused]
        if options.anonymize:
            refused = [("", "one input was not read")] * len(refused)
        writer.finish(
            CohortFacts(
                format_version=FORMAT_VERSION,
                library_version=__version__,
                created=_now(),
                encoder=name,
                encoder_description=encoder.description,
                encoder_options=options_to_remake(encoder, options.encoder_options),
                fingerprint=encoder.fingerprint,
                input_size=encoder.input_size,
                layers=tuple(encoder.layers),
                widths=tuple(encoder.widths),
                protocol=protocol.name,
                plane=options.plane,
                seed=options.seed,
                robust=robust,
                poses=tuple(pose.label for pose in poses),
                anonymized=options.anonymize,
                subjects=tuple(names),
                volumes=volumes,
                subject_rule=material.subject_rule,
                skipped=gathered.skipped,
                refused=tuple(refused),
                warnings=tuple(warnings),
                shrinkage=tuple(w.shrinkage for w in whiteners),
                rightly_named=control.rightly_named,
                patients_apart=VERSION if apart is not None else 0,
                parts=part_fingerprint() if options.parts else "",
            )
        )
    return load_cohort(path)


@dataclass
class _Gathered:
    """What one pass over the images gave, in the order of reading."""

    spools: list[Path]
    keeper: _Keeper
    subjects: list[str] = field(default_factory=list)
    volumes: dict[str, int] = field(default_factory=dict)
    volume_codes: list[int] = field(default_factory=list)
    indices: list[int] = field(default_factory=list)
    digests: list[int] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    thumbnails: list[NDArray[np.uint8]] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)
    skipped: int = 0
    parts: PartGatherer | None = None


def _gather(
    material: _Material,
    writer: CohortWriter,
    encoder: CachedEncoder,
    poses: Sequence[Pose],
    options: CohortOptions,
    progress: ProgressFunction,
    cancelled: CancelFunction,
) -> _Gathered:
    spool = writer.folder / "spool"
    gathered = _Gathered(
        [spool / str(number) for number in range(len(encoder.layers))],
        _Keeper(material.subjects, options.seed),
    )
    slices = material.stream(
        options.plane,
        encoder.input_size,
        lambda place, why: gathered.refused.append((place, why)),
    )
    done = 0
    with contextlib.ExitStack() as stack:
        spools = [stack.enter_context(writer.spool(path)) for path in gathered.spools]
        if options.parts:
            gathered.parts = PartGatherer(writer, encoder, stack)
        for batch in encode_slices(slices, encoder, poses):
            check(cancelled)
            for append, layer in zip(spools, batch.features, strict=True):
                append(layer.swapaxes(0, 1))
            if gathered.parts is not None:
                gathered.parts.add(batch.scored)
            for one in batch.scored:
                assert one.pixels is not None
                gathered.subjects.append(one.subject)
                gathered.volume_codes.append(
                    gathered.volumes.setdefault(one.volume, len(gathered.volumes))
                )
                gathered.indices.append(one.index)
                gathered.digests.append(pixel_digest(one.pixels))
                gathered.sources.append(str(Path(one.source).absolute()) if one.source else "")
                if options.thumbnails:
                    gathered.thumbnails.append(thumbnail(one.pixels))
                gathered.keeper.offer(one.subject, gathered.digests[-1], one.pixels)
            gathered.skipped += len(batch.slices) - len(batch.scored)
            done += len(batch.slices)
            progress(Progress("Encoding the reference", done, max(done, material.slice_count)))
    if not gathered.subjects:
        if gathered.refused:
            raise ImageError(nothing_left(gathered.refused))
        raise ImageError(
            f"None of the {gathered.skipped} slices can be scored; the images are blank, nearly "
            "constant or too small."
        )
    return gathered


class _Keeper:
    """Keeps a few slices of each subject, drawn evenly, for known copies.

    A hash of seed and picture decides which, so that the order of reading does not.
    """

    def __init__(self, subjects: frozenset[str], seed: int) -> None:
        self.seed = seed
        self.size = max(1, math.ceil(2 * CONTROL_SLICES / max(1, len(subjects))))
        drawn = sorted(subjects)
        if len(drawn) > 2 * CONTROL_SLICES:
            rng = np.random.default_rng([seed, 1])
            chosen = rng.choice(len(drawn), 2 * CONTROL_SLICES, replace=False)
            drawn = [drawn[number] for number in chosen]
        self.kept: dict[str, dict[bytes, NDArray[np.float32]]] = {name: {} for name in drawn}

    def offer(self, subject: str, digest: int, pixels: NDArray[np.float32]) -> None:
        """Take a slice or not."""
        if subject not in self.kept:
            return
        kept = self.kept[subject]
        kept[hashlib.sha256(f"{self.seed} {digest}".encode()).digest()] = pixels
        if len(kept) > self.size:
            del kept[max(kept)]

    def drawn(self) -> tuple[list[str], list[NDArray[np.float32]]]:
        """Return subject and pixels of each kept slice, in an order of their own."""
        ordered = [
            (subject, kept[key])
            for subject, kept in sorted(self.kept.items())
            for key in sorted(kept)
        ]
        return [subject for subject, _ in ordered], [pixels for _, pixels in ordered]


def _subject_codes(gathered: _Gathered, anonymize: bool) -> tuple[list[str], dict[str, int]]:
    """Return the names to be stored, by code, and the code of each true name.

    Hashed names follow their pictures' hashes: rows in the order of the true names would give
    them away, and in that of the hashed names the salt would have a say in what is computed.
    """
    names = sorted(set(gathered.subjects))
    if not anonymize:
        return names, {name: code for code, name in enumerate(names)}
    shown = _pseudonyms(names)
    pictures: dict[str, list[int]] = {name: [] for name in names}
    for name, digest in zip(gathered.subjects, gathered.digests, strict=True):
        pictures[name].append(digest)
    place = {
        name: (hashlib.sha256(repr(sorted(digests)).encode()).digest(), shown[name])
        for name, digests in pictures.items()
    }
    names.sort(key=place.__getitem__)
    return [shown[name] for name in names], {name: code for code, name in enumerate(names)}


def _pseudonyms(subjects: Iterable[str]) -> dict[str, str]:
    """Return a hash of each name under a salt that is then forgotten."""
    salt = secrets.token_bytes(16)
    return {
        name: "subject-"
        + hashlib.blake2b(
            name.encode("utf-8", "surrogatepass"), key=salt, digest_size=6
        ).hexdigest()
        for name in subjects
    }


def _ordered_features(
    gathered: _Gathered,
    writer: CohortWriter,
    encoder: Encoder,
    poses: int,
    order: NDArray[np.int64],
) -> list[NDArray[np.float32]]:
    features = []
    for layer, width, spool in zip(encoder.layers, encoder.widths, gathered.spools, strict=True):
        raw = np.memmap(spool, np.float32, "r", shape=(len(order), poses, width))
        ordered = writer.mapped(f"features.{layer}", (poses, len(order), width), np.float32)
        for start in range(0, len(order), _COPIED_AT_ONCE):
            part = slice(start, start + _COPIED_AT_ONCE)
            ordered[:, part] = raw[order[part]].swapaxes(0, 1)
        del raw
        spool.unlink()
        features.append(ordered)
    return features


def _null(
    reference: Reference,
    features: Sequence[NDArray[np.float32]],
    protocol: Protocol,
    seed: int,
    code_of: Mapping[str, int],
    views: Views,
    progress: ProgressFunction,
    cancelled: CancelFunction,
) -> Null:
    # In the order of the true names: one seed gives one null, hashed names or not.
    codes_by_name = [code_of[name] for name in sorted(code_of)]
    tell = _telling("Calibrating the null", "slices", progress, cancelled)
    if protocol.null == "subjects":
        return cross_fitted_null(
            features,
            reference.subjects,
            reference.subject_count,
            protocol,
            seed,
            views=views,
            progress=tell,
            fold_of_subject=_fold_of_subject(code_of, seed),
        )
    rank = np.argsort(codes_by_name)
    order = np.argsort(rank[reference.subjects], kind="stable")
    if protocol.whitening == "clip":
        with np.errstate(all="ignore"):
            similarity = published.calibrate([np.asarray(f[0])[order] for f in features]).null
        return Null(similarity, np.full(len(similarity), -1, np.int64))
    return half_split_null(reference, protocol, seed, order, progress=tell)


def _fold_of_subject(code_of: Mapping[str, int], seed: int) -> NDArray[np.int64]:
    """Deal subjects in the order of the true names: one seed, one null, hashed names or not."""
    dealt = subject_folds(len(code_of), np.random.default_rng(seed))
    fold_of_subject = np.empty_like(dealt)
    fold_of_subject[[code_of[name] for name in sorted(code_of)]] = dealt
    return fold_of_subject


def _telling(
    stage: str, unit: str, progress: ProgressFunction, cancelled: CancelFunction
) -> Callable[[int, int], None]:
    def tell(done: int, total: int) -> None:
        check(cancelled)
        progress(Progress(stage, done, total, unit))

    return tell


def _control(
    keeper: _Keeper,
    code_of: Mapping[str, int],
    match: Matcher,
    encoder: Encoder,
    seed: int,
    progress: ProgressFunction,
    cancelled: CancelFunction,
) -> Control:
    subjects, pictures = keeper.drawn()
    rank = {name: number for number, name in enumerate(sorted(set(subjects)))}
    sample = balanced_sample(
        [rank[name] for name in subjects], CONTROL_SLICES, np.random.default_rng([seed, 2])
    )
    truth = np.array([code_of[subjects[number]] for number in sample])
    similarity, named = {}, {}
    for step, transformation in enumerate(TRANSFORMATIONS):
        check(cancelled)
        rng = np.random.default_rng([seed, 3, step])
        disguised = np.stack([transformation.apply(pictures[number], rng) for number in sample])
        features = encoder.encode(disguised)
        matches = match(features)
        similarity[transformation.name] = matches.similarity
        named[transformation.name] = float(np.mean(matches.subjects[:, 0] == truth))
        progress(Progress("Trying known copies", step + 1, len(TRANSFORMATIONS), "disguises"))
    return Control(similarity, truth, named)


def _patients_apart(
    pairs: Sequence[NearestPair],
    gathered: _Gathered,
    order: NDArray[np.int64],
    encoder: Encoder,
    options: CohortOptions,
    progress: ProgressFunction,
    cancelled: CancelFunction,
) -> PatientsApart | None:
    """Lay patients over each other; None where too few images can be read again."""
    where = PictureSources(
        [gathered.sources[row] for row in order],
        np.array(gathered.digests, np.uint64)[order],
        np.array(gathered.indices, np.int64)[order],
        options.plane,
        encoder.input_size,
    )

    def read(rows: Sequence[int]) -> dict[int, Pixels]:
        return read_pictures(where, rows, between_files=lambda: check(cancelled))

    try:
        return lay_apart(
            pairs,
            read,
            stage="Laying patients over each other",
            progress=progress,
            cancelled=cancelled,
        )
    except ComparisonError:
        return None


def _volume_codes(
    gathered: _Gathered, order: NDArray[np.int64], anonymize: bool
) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    codes = np.array(gathered.volume_codes, np.int64)[order]
    if not anonymize:
        return tuple(gathered.volumes), codes
    # Numbered as the rows lie: the order of reading would give the names away.
    number_of = {code: number for number, code in enumerate(dict.fromkeys(codes.tolist()))}
    names = tuple(f"volume-{number + 1}" for number in range(len(number_of)))
    return names, np.array([number_of[code] for code in codes.tolist()], np.int64)


def _write_arrays(
    writer: CohortWriter,
    gathered: _Gathered,
    order: NDArray[np.int64],
    codes: NDArray[np.int64],
    volume_codes: NDArray[np.int64],
    null: Null,
    control: Control,
    options: CohortOptions,
) -> None:
    writer.array("subjects", codes)
    writer.array("volumes", volume_codes)
    writer.array("indices", np.array(gathered.indices, np.int64)[order])
    writer.array("digests", np.array(gathered.digests, np.uint64)[order])
    writer.sources(["" if options.anonymize else gathered.sources[row] for row in order])
    writer.array("null.similarity", null.similarity)
    writer.array("null.subjects", null.subjects)
    for name, values in control.similarity.items():
        writer.array(f"control.{name}", values)
    writer.array("control.subjects", control.subjects)
    if options.thumbnails:
        writer.array("thumbnails", np.stack([gathered.thumbnails[row] for row in order]))


def _undefined(protocol: Protocol, reference: Reference, null: Null) -> list[str]:
    """Say, with numbers, where a published protocol means nothing on this reference."""
    sentences = []
    count = reference.slice_count
    widest = max(w.mean.shape[0] for w in reference.whiteners)
    if protocol.null == "halves" and count <= widest:
        sentences.append(
            f"The protocol {protocol.name} is undefined here: {count} slices cannot determine a "
            f"covariance of {widest} features; it needs more slices than features."
        )
    undefined = int(np.sum(~np.isfinite(null.similarity)))
    if undefined:
        sentences.append(
            f"The protocol {protocol.name} is undefined here: {undefined} of "
            f"{len(null.similarity)} null similarities are the logarithm of a negative number."
        )
    elif (spread := null_spread(null.similarity, protocol)).sd < LEAST_SPREAD:
        sentences.append(
            f"The protocol {protocol.name} is undefined here: its null has a standard deviation of "
            f"{spread.sd:.1e}, below {LEAST_SPREAD:.0e}."
        )
    return sentences


def nothing_left(refused: Sequence[tuple[str, str]]) -> str:
    """Say in a sentence why no input is left, given (path, sentence) of those that were refused."""
    if not refused:
        return "The inputs hold no image that can be used."
    place, why = refused[0]
    sentence = why.rstrip(".") if place in why else f"{place} cannot be used: {why.rstrip('.')}"
    more = len(refused) - 1
    also = f", and {more} more input{'s' * (more != 1)} cannot be used either" if more else ""
    return f"{sentence}{also}."


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
