"""Who is the subject, and by which rule; and names that tell files apart."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from MemorizationIndexLib.images.volume import ImageError

PATTERN = "the --subjects pattern"
MANIFEST = "the manifest"
PATIENT_ID = "DICOM PatientID"
BIDS = "their BIDS sub- name"
FOLDER = "their parent folder"
FILE = "their file name"

RULES = (PATTERN, MANIFEST, PATIENT_ID, BIDS, FOLDER, FILE)
"""The rules in the order in which they are tried (issue 2, "Subject identity")."""

_BIDS_LABEL = re.compile(r"(sub-[A-Za-z0-9]+)(?:_|\.|$)")


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile the user's ``--subjects`` pattern.

    Raises:
        ImageError: Not a regular expression.
    """
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ImageError(
            f"The --subjects pattern {pattern!r} is not a regular expression: {error}."
        ) from error


def subject_by_pattern(pattern: re.Pattern[str], *texts: str) -> str:
    """Return what the pattern finds in the first text it matches.

    The group named ``subject`` if there is one, else the first group, else the whole match.

    Raises:
        ImageError: No match, or an empty one.
    """
    for text in texts:
        match = pattern.search(text)
        if match is None:
            continue
        if "subject" in pattern.groupindex:
            found = match["subject"]
        else:
            found = match[1] if pattern.groups else match[0]
        if found:
            return found
    raise ImageError(
        f"The --subjects pattern {pattern.pattern!r} finds no subject in {texts[0]}; change it so "
        "that it matches the path of every image."
    )


def bids_subject(parts: Iterable[str]) -> str:
    """Return the first ``sub-XXX`` among the components of a path, or an empty string."""
    for part in parts:
        if match := _BIDS_LABEL.match(part):
            return match[1]
    return ""


def shortest_distinct(paths: Sequence[tuple[str, ...]]) -> dict[tuple[str, ...], str]:
    """Give each path its fewest trailing components that no other path ends with."""
    names: dict[tuple[str, ...], str] = {}
    left, level = list(dict.fromkeys(paths)), 1
    while left:
        endings = Counter(path[-level:] for path in left)
        for path in left:
            if endings[path[-level:]] == 1 or level >= len(path):
                names[path] = "/".join(path[-level:])
        left, level = [path for path in left if path not in names], level + 1
    return names


def rule_sentence(counts: dict[str, int]) -> str:
    """Say how many subjects there are and by which rule they were identified."""
    total = sum(counts.values())
    subjects = f"{total} subject" + ("" if total == 1 else "s")
    if len(counts) <= 1:
        return f"{subjects}, identified by {next(iter(counts), 'no rule')}"
    shares = ", ".join(f"{count} by {rule}" for rule, count in counts.items())
    return f"{subjects}, identified {shares}"
