"""From the user's inputs to sources: which files are images, whose, and under which names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from MemorizationIndexLib.images import dicom, itk, pictures, stacks
from MemorizationIndexLib.images.identity import (
    BIDS,
    FILE,
    FOLDER,
    MANIFEST,
    PATIENT_ID,
    PATTERN,
    RULES,
    bids_subject,
    compile_pattern,
    rule_sentence,
    shortest_distinct,
    subject_by_pattern,
)
from MemorizationIndexLib.images.manifest import (
    NAME,
    Manifest,
    ManifestRow,
    MissingColumnsError,
    load_manifest,
)
from MemorizationIndexLib.images.slicing import count_slices
from MemorizationIndexLib.images.source import ImageSet, ImageSource
from MemorizationIndexLib.images.volume import ImageError

MANY_FILES = 10
"""Volume files in one subject above which the parent-folder rule is doubted aloud."""

_IGNORED = {"__MACOSX", "DICOMDIR", "Thumbs.db", "desktop.ini"}

_COHORT = ".micohort"
"""Cohorts hold .npy files that are no images."""

_KNOWN = "NIfTI, NRRD, MHA/MHD, DICOM, PNG, JPEG, TIFF, npy, npz or a manifest .csv"


@dataclass(frozen=True)
class _File:
    """An image file among the inputs.

    Attributes:
        path: As the user would name it.
        place: Absolute, for names and folders.
        kind: ``images``, ``volume``, ``stack`` or ``dicom``.
        input: The input it was found in, as given.
        texts: What the ``--subjects`` pattern is searched in, first text first.
        parts: Path components in which a BIDS name is looked for.
        rows: The manifest's lines about it.
        alone: Whether the user named this file itself.
    """

    path: Path
    place: Path
    kind: str
    input: str
    texts: tuple[str, ...]
    parts: tuple[str, ...]
    rows: tuple[ManifestRow, ...]
    alone: bool


@dataclass(frozen=True)
class _Draft:
    """A source whose name and, by the last rules, subject wait until all files are known.

    Attributes:
        source: With an empty name, and an empty subject where the last rules decide.
        stem: Path components that name it.
        suffix: Distinguishes files of one stem.
        tag: What is added to the name whatever the path.
        folder: Components of the parent folder, for the last rules.
    """

    source: ImageSource
    stem: tuple[str, ...]
    suffix: str
    tag: str
    folder: tuple[str, ...]


@dataclass
class _Search:
    """What has been gathered so far."""

    files: list[_File] = field(default_factory=list)
    seen: set[Path] = field(default_factory=set)
    refused: list[tuple[str, str]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    beside: dict[Path, dict[Path, list[ManifestRow]]] = field(default_factory=dict)


def natural_key(text: str) -> list[tuple[int, int, str]]:
    """Return a sort key that puts ``slice10`` after ``slice9``."""
    return [
        (0, int(part), "") if part.isdecimal() else (1, 0, part.casefold())
        for part in re.split(r"(\d+)", text)
        if part
    ]


def _path_key(path: Path) -> tuple[list[list[tuple[int, int, str]]], str]:
    # The text itself decides between 01 and 1, so that the order is total.
    return [natural_key(part) for part in path.parts], str(path)


def _kind(path: Path, *, strict: bool) -> str:
    """Tell the kind of a file from its name, else from its first bytes; empty if unknown.

    Args:
        path: The file.
        strict: Whether a DICOM file without the usual preamble must have a likely name.
    """
    suffix = itk.suffix_of(path)
    if suffix in pictures.SUFFIXES:
        return "images"
    if suffix in itk.IMAGE_IO:
        return "volume"
    if suffix in stacks.SUFFIXES:
        return "stack"
    if suffix in dicom.SUFFIXES:
        return "dicom"
    # Archives name files by number or by UID, which looks like a suffix.
    likely = not suffix or suffix[1:].isdecimal() or not strict
    return "dicom" if dicom.looks_like_dicom(path, without_preamble=likely) else ""


def _walk(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder in natural order, each folder once whatever links say."""
    entered: set[Path] = set()

    def enter(current: Path) -> Iterator[Path]:
        real = current.resolve()
        if real in entered:
            return
        entered.add(real)
        try:
            entries = sorted(current.iterdir(), key=_path_key)
        except OSError as error:
            raise ImageError(f"{current} cannot be opened: {error.strerror}.") from error
        for entry in entries:
            if entry.name.startswith(".") or entry.name in _IGNORED or entry.suffix == _COHORT:
                continue
            if entry.is_dir():
                yield from enter(entry)
            elif entry.is_file():
                yield entry

    yield from enter(folder)


def _rows_about(path: Path, rows: dict[Path, list[ManifestRow]]) -> tuple[ManifestRow, ...]:
    """Return the lines that name a file, or else the nearest folder around it."""
    if not rows:
        return ()
    real = path.resolve()
    for candidate in (real, *real.parents):
        if candidate in rows:
            return tuple(rows[candidate])
    return ()


def _add(
    search: _Search,
    paths: Iterable[Path],
    given: str,
    root: Path,
    rows: dict[Path, list[ManifestRow]],
    *,
    alone: bool = False,
) -> tuple[int, int]:
    """Add the images among files; return how many there are and how many the manifest lacks."""
    count, unlisted = 0, 0
    base = root.resolve()
    for path in paths:
        try:
            kind = _kind(path, strict=not alone)
            real = path.resolve()
        except OSError as error:
            search.refused.append((str(path), f"{path} cannot be opened: {error.strerror}."))
            count += 1
            continue
        if not kind:
            continue
        count += 1
        about = _rows_about(path, rows)
        unlisted += not about
        if real in search.seen:
            continue
        search.seen.add(real)
        try:
            relative = path.relative_to(root)
        except ValueError:
            relative = path
        place = base / relative
        named = place.relative_to(base.parent) if base.parent in place.parents else place
        texts: tuple[str, ...] = (named.as_posix(),)
        if alone:
            texts = (place.name, f"{place.parent.name}/{place.name}")
        # Of a file named by itself all folders are known: the nearest counts.
        parts = path.parts[::-1] if alone else named.parts
        search.files.append(_File(path, place, kind, given, texts, parts, about, alone))
    return count, unlisted


def _add_folder(search: _Search, folder: Path, given: str) -> None:
    if folder.suffix == _COHORT:
        raise ImageError(f"{folder} is a cohort, not a folder of images; give it with --cohort.")
    rows: dict[Path, list[ManifestRow]] = {}
    table = folder / NAME
    listed = False
    if table.is_file():
        try:
            manifest = load_manifest(table)
        except MissingColumnsError as error:
            search.warnings.append(f"Ignored as a manifest: {error}")
        else:
            rows, listed = manifest.by_path(), True
            if manifest.missing:
                search.warnings.append(
                    f"{table} lists {len(manifest.missing)} files that are not there, the first "
                    f"of them {manifest.missing[0][1]}."
                )
    count, unlisted = _add(search, _walk(folder), given, folder, rows)
    if not count:
        raise ImageError(f"{folder} holds no image ({_KNOWN}); name a folder that does.")
    if listed and unlisted:
        search.warnings.append(
            f"{unlisted} of {count} images in {folder} are not in its {NAME}; their subjects "
            "were identified by the other rules."
        )


def _add_manifest(search: _Search, file: Path, given: str) -> None:
    manifest: Manifest = load_manifest(file)
    if manifest.missing:
        line, written = manifest.missing[0]
        raise ImageError(
            f"{file}, line {line}: {written} is neither in the manifest's folder nor in the one "
            f"above it ({len(manifest.missing)} files are missing)."
        )
    rows = manifest.by_path()
    for row in {row.path: row for row in manifest.rows}.values():
        paths = list(_walk(row.path)) if row.path.is_dir() else [row.path]
        count, _ = _add(search, paths, given, file.parent, rows)
        if not count:
            what = "holds no image" if row.path.is_dir() else "is not an image"
            raise ImageError(f"{file}, line {row.line}: {row.path} {what} ({_KNOWN}).")


def _rows_beside(search: _Search, path: Path) -> dict[Path, list[ManifestRow]]:
    """Return the lines of the manifest beside a file that the user named itself."""
    table = path.parent / NAME
    if table not in search.beside:
        search.beside[table] = {}
        if table.is_file():
            try:
                search.beside[table] = load_manifest(table).by_path()
            except ImageError as error:
                # Nobody asked for this table: it must not stop the run.
                search.warnings.append(f"Ignored as a manifest: {error}")
    return search.beside[table]


def _gather(inputs: Sequence[str | Path], *, beside: bool) -> _Search:
    search = _Search()
    if not inputs:
        raise ImageError("No input was given; name at least one image, folder or manifest.")
    for given in inputs:
        path = Path(given).expanduser()
        try:
            exists = path.exists()
        except (OSError, ValueError):
            exists = False
        if not exists:
            raise ImageError(f"{given} does not exist; check the path.")
        if path.is_dir():
            _add_folder(search, path, str(given))
        elif path.suffix.lower() == ".csv":
            _add_manifest(search, path, str(given))
        else:
            rows = _rows_beside(search, path) if beside else {}
            count, unlisted = _add(search, [path], str(given), path.parent, rows, alone=True)
            if not count:
                raise ImageError(f"{given} is not an image that can be read ({_KNOWN}).")
            if rows and unlisted:
                search.warnings.append(
                    f"{given} is not in the {NAME} beside it; its subject was identified by the "
                    "other rules."
                )
    return search


def _early_subject(
    file: _File, pattern: re.Pattern[str] | None, patient: str = ""
) -> tuple[str, str]:
    """Return subject and rule, or ('', '') where the last rules decide."""
    if pattern is not None:
        return subject_by_pattern(pattern, *file.texts), PATTERN
    if file.rows:
        subjects = list(dict.fromkeys(row.subject for row in file.rows))
        if len(subjects) > 1:
            raise ImageError(
                f"The manifest gives {file.path} to {subjects[0]} and to {subjects[1]}; give each "
                "line its own slice_index or correct subject_id."
            )
        return subjects[0], MANIFEST
    if patient:
        return patient, PATIENT_ID
    if subject := bids_subject(file.parts):
        return subject, BIDS
    return "", ""


def _slice_groups(
    file: _File, pattern: re.Pattern[str] | None
) -> list[tuple[str, str, tuple[int, ...] | None]]:
    """Return subject, rule and slices (None for all) of each part of a stack or volume."""
    by_slice = [row for row in file.rows if row.slice_index is not None]
    if not by_slice or len(by_slice) < len(file.rows):
        return [(*_early_subject(file, pattern), None)]
    owners: dict[int, str] = {}
    for row in by_slice:
        index = int(row.slice_index or 0)
        if owners.setdefault(index, row.subject) != row.subject:
            raise ImageError(
                f"The manifest gives slice {index} of {file.path} to {owners[index]} and to "
                f"{row.subject}; correct line {row.line}."
            )
    if pattern is not None:
        return [(*_early_subject(file, pattern), tuple(sorted(owners)))]
    return [
        (subject, MANIFEST, tuple(sorted(i for i, owner in owners.items() if owner == subject)))
        for subject in dict.fromkeys(owners.values())
    ]


def _stem(file: _File) -> tuple[tuple[str, ...], str]:
    suffix = file.place.name[len(file.place.name) - len(itk.suffix_of(file.place)) :]
    stem = file.place.name.removesuffix(suffix) or file.place.name
    return (*file.place.parent.parts, stem), suffix


def _image_drafts(
    files: list[_File], pattern: re.Pattern[str] | None, warnings: list[str]
) -> Iterator[_Draft]:
    """One draft a folder of 2D images, or one a subject where the folder holds several."""
    ambiguous: list[str] = []
    folders: dict[Path, list[_File]] = {}
    for file in files:
        folders.setdefault(file.place.parent, []).append(file)
    for folder, members in folders.items():
        members.sort(key=lambda file: _path_key(Path(file.place.name)))
        groups: dict[tuple[str, str], list[tuple[_File, int]]] = {}
        for position, file in enumerate(members):
            label = position
            if len(file.rows) == 1 and file.rows[0].slice_index is not None:
                label = file.rows[0].slice_index
            groups.setdefault(_early_subject(file, pattern), []).append((file, label))
        places = {file.place: position for position, file in enumerate(members)}
        for (subject, rule), taken in groups.items():
            if not rule:
                rule = FOLDER
            label, images = Counter(label for _, label in taken).most_common(1)[0]
            if images > 1:
                # Results tell slices of a volume apart by their labels.
                ambiguous.append(f"{images} images of {subject or folder.name} as slice {label}")
                taken = [(file, places[file.place]) for file, _ in taken]
            yield _Draft(
                ImageSource(
                    "",
                    subject,
                    rule,
                    "images",
                    tuple(file.path for file, _ in taken),
                    len(taken),
                    taken[0][0].input,
                    labels=tuple(label for _, label in taken),
                ),
                folder.parts,
                "",
                f" [{subject or folder.name}]" if len(groups) > 1 else "",
                folder.parts,
            )
    if ambiguous:
        more = f", and so for {len(ambiguous) - 1} more" if len(ambiguous) > 1 else ""
        warnings.append(
            f"The manifest lists {ambiguous[0]}{more}; such images are numbered from 0 instead, "
            "in the natural order of their names."
        )


def _check_slices(file: _File, selected: tuple[int, ...] | None, count: int) -> None:
    for index in selected or ():
        if not 0 <= index < count:
            raise ImageError(
                f"The manifest names slice {index} of {file.path}, which has {count} slices "
                "numbered from 0; correct its slice_index."
            )


def _file_drafts(file: _File, pattern: re.Pattern[str] | None) -> Iterator[_Draft]:
    """Drafts of a volume file, a multi-page TIFF or a stack.

    Raises:
        ImageError: The header cannot be used, or the manifest contradicts it.
    """
    groups = _slice_groups(file, pattern)
    members: list[tuple[str, int]]
    times = 1
    if file.kind == "volume":
        header = itk.read_header(file.path)
        try:
            members = [("", count_slices(header.size[:3], header.affine))]
        except ImageError as error:
            raise ImageError(f"{file.path}: {error}.") from error
        times = header.size[3]
    elif file.kind == "pages":
        members = [("", pictures.page_count(file.path))]
    else:
        members = stacks.find_stacks(file.path)
    stem, suffix = _stem(file)
    for member, count in members:
        for subject, rule, selected in groups:
            if file.kind != "volume":
                _check_slices(file, selected, count)
            tag = f":{member}" if len(members) > 1 else ""
            if len(groups) > 1:
                tag += f" [{subject}]"
            wanted = count if selected is None else len(selected)
            yield _Draft(
                ImageSource(
                    "",
                    subject,
                    rule,
                    file.kind,
                    (file.path,),
                    wanted * times,
                    file.input,
                    selected=selected,
                    member=member,
                ),
                stem,
                suffix,
                tag,
                file.place.parent.parts,
            )


def _dicom_drafts(
    files: list[_File],
    pattern: re.Pattern[str] | None,
    refused: list[tuple[str, str]],
    *,
    any_modality: bool,
) -> Iterator[_Draft]:
    """One draft a series of a folder."""
    folders: dict[Path, list[_File]] = {}
    for file in files:
        folders.setdefault(file.place.parent, []).append(file)
    for folder, members in folders.items():
        headers, by_path = [], {}
        for file in members:
            try:
                headers.append(dicom.read_dicom_header(file.path))
                by_path[file.path] = file
            except ImageError as error:
                refused.append((str(file.path), str(error)))
        taken = []
        for series in dicom.group_series(headers, any_modality=any_modality):
            if series.problem:
                where = series.paths[0] if len(series.paths) == 1 else series.paths[0].parent
                refused.append((str(where), series.problem))
            else:
                taken.append(series)
        labels = Counter(series.label for series in taken)
        for series in taken:
            first = by_path[series.paths[0]]
            subject, rule = _early_subject(first, pattern, series.patient)
            label = series.label
            if labels[label] > 1 and series.number:
                label = f"{label} {series.number}"
            stem, suffix, tag = folder.parts, "", f" {label}" if len(taken) > 1 else ""
            if len(series.paths) == 1 and first.alone:
                (stem, suffix), tag = _stem(first), ""
            yield _Draft(
                ImageSource(
                    "",
                    subject,
                    rule or FOLDER,
                    "dicom",
                    series.paths,
                    series.slice_count,
                    first.input,
                    timepoints=series.timepoints,
                    planar=series.planar,
                ),
                stem,
                suffix,
                tag,
                folder.parts,
            )


def _named(drafts: list[_Draft]) -> list[ImageSource]:
    """Give every draft a name of its own: the shortest path that tells it from the others."""
    keys = [(*draft.stem, draft.tag) for draft in drafts]
    twins = Counter(keys)
    paths: list[tuple[str, ...]] = []
    used: Counter[tuple[str, ...]] = Counter()
    for draft, key in zip(drafts, keys, strict=True):
        suffix = draft.suffix if twins[key] > 1 else ""
        path = (*draft.stem[:-1], draft.stem[-1] + suffix + draft.tag)
        used[path] += 1
        if used[path] > 1:
            path = (*path[:-1], f"{path[-1]} ({used[path]})")
        paths.append(path)
    names = shortest_distinct(paths)
    return [
        replace(draft.source, name=names[path]) for draft, path in zip(drafts, paths, strict=True)
    ]


def _with_late_subjects(drafts: list[_Draft]) -> list[_Draft]:
    """Apply the last two rules, which depend on all files together."""
    undecided = [draft for draft in drafts if not draft.source.subject]
    loose = {draft.folder for draft in undecided if not draft.source.rule}
    folders = shortest_distinct([draft.folder for draft in undecided])
    done = []
    for draft in drafts:
        source = draft.source
        if not source.subject:
            by_folder = source.rule == FOLDER or len(loose) > 1
            subject = folders[draft.folder] if by_folder else draft.stem[-1]
            source = replace(source, subject=subject, rule=FOLDER if by_folder else FILE)
        done.append(replace(draft, source=source))
    return done


def _doubts(drafts: list[_Draft]) -> Iterator[str]:
    """Yield a sentence for each sign that the parent-folder rule is wrong here."""
    remedy = "use --subjects PATTERN or a manifest.csv if they come from different subjects"
    by_folder = [draft.source for draft in drafts if draft.source.rule == FOLDER]
    files = Counter(
        source.subject for source in by_folder if source.kind in ("volume", "stack", "pages")
    )
    for subject, count in files.items():
        if count > MANY_FILES:
            yield (
                f"{count} volume files lie in the folder {subject} and count as one subject; "
                f"{remedy}."
            )
    images = [draft.source for draft in drafts if draft.source.kind == "images"]
    if len(images) == 1 and images[0].rule == FOLDER and len(images[0].paths) > 1:
        yield (
            f"The {len(images[0].paths)} pictures in the folder {images[0].subject} were taken as "
            "the slices of one volume, in the natural order of their names, and count as one "
            f"subject; {remedy}."
        )


def _rule_counts(sources: Iterable[ImageSource]) -> dict[str, int]:
    rules: dict[str, str] = {}
    for source in sources:
        rules.setdefault(source.subject, source.rule)
    counts = Counter(rules.values())
    return {rule: counts[rule] for rule in RULES if counts[rule]}


def find_images(
    inputs: Sequence[str | Path],
    *,
    subjects: str | None = None,
    any_modality: bool = False,
    beside: bool = True,
) -> ImageSet:
    """Find the images among files, folders and manifests, and who they are of.

    Reads headers, never voxels. A file that is reached twice is taken once.

    Args:
        inputs: Image files (a ``manifest.csv`` beside one gives its identity), folders (searched
            recursively; a ``manifest.csv`` at the top gives identities) and manifests (only what
            they list is taken).
        subjects: Regular expression that finds the subject in a file's path, which starts with
            the name of the input folder: its group ``subject``, else its first group, else all
            it matches.
        any_modality: Take DICOM series of other modalities than MR too.
        beside: Whether a ``manifest.csv`` beside an image file is read: it looks for every file
            that it lists, which is too much where single files are asked for one after another.

    Returns:
        What can be read, in the order of inputs and natural order of paths, and what cannot. May
        hold no source where every file was refused.

    Raises:
        ImageError: A missing path, a folder without images, a file of unknown type, an unusable
            manifest, or an unusable ``subjects`` pattern.
    """
    pattern = None if subjects is None else compile_pattern(subjects)
    search = _gather([inputs] if isinstance(inputs, (str, Path)) else inputs, beside=beside)
    files = [
        replace(file, kind="pages")
        if file.kind == "images" and pictures.page_count(file.path) > 1
        else file
        for file in search.files
    ]
    flat = [file for file in files if file.kind == "images"]
    drafts = list(_image_drafts(flat, pattern, search.warnings))
    drafts += _dicom_drafts(
        [file for file in files if file.kind == "dicom"],
        pattern,
        search.refused,
        any_modality=any_modality,
    )
    for file in files:
        if file.kind in ("volume", "stack", "pages"):
            if pattern is not None or file.rows:
                # A wrong pattern or manifest concerns the whole run, not this file alone.
                _slice_groups(file, pattern)
            try:
                drafts += _file_drafts(file, pattern)
            except ImageError as error:
                search.refused.append((str(file.path), str(error)))
    order = {file.path: position for position, file in enumerate(files)}
    drafts.sort(key=lambda draft: order[draft.source.paths[0]])
    drafts = _with_late_subjects(drafts)
    sources = _named(drafts)
    counts = _rule_counts(sources)
    return ImageSet(
        tuple(sources),
        tuple(search.refused),
        counts,
        rule_sentence(counts),
        (*search.warnings, *_doubts(drafts)),
    )
