"""Results of single volumes joined: what parts say is neither lost nor laid over whole matches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from MemorizationIndexLib import joining, verifying
from MemorizationIndexLib.audit import AuditOptions, score_volumes
from MemorizationIndexLib.cohort import load_cohort
from MemorizationIndexLib.encoders.registry import get_encoder
from MemorizationIndexLib.images.volume import Volume
from MemorizationIndexLib.results import PART, PartPictures, Verdict

pytest.importorskip("torch", reason="needs torch")
pytest.importorskip("SimpleITK", reason="needs SimpleITK")


@pytest.fixture(scope="module")
def cohort(small_audit):
    return load_cohort(small_audit.cohort)


@pytest.fixture(scope="module")
def volumes(small_audit):
    from MemorizationIndexLib.images import find_images, read_source

    made = []
    for name in ("q0", "q1"):
        (one,) = read_source(find_images([small_audit.queries / name]).sources[0])
        made.append(Volume(name, name, one.array, one.affine, name))
    return made


@pytest.fixture(scope="module")
def results(cohort, volumes):
    """Of two volumes; a part of one slice of each stands out, of the second the more."""
    options = AuditOptions(alpha=0.05, device="cpu", verify=False)
    found = []
    for number, volume in enumerate(volumes):
        result = score_volumes([volume], cohort, options=options)
        slices = list(result.slices)
        slices[1] = replace(
            slices[1],
            verdict=Verdict.SUSPICIOUS,
            flagged_by=PART,
            part_p_value=0.02,
            part_similarity=0.8 + 0.1 * number,
        )
        picture = np.full((8, 8), number, np.uint8)
        found.append(
            replace(
                result,
                slices=tuple(slices),
                summary=replace(result.summary, part_suspicious=1),
                part_pictures={(volume.name, slices[1].slice): PartPictures(picture, picture)},
            )
        )
    return found


def test_what_was_found_of_parts_is_joined(results, cohort, monkeypatch):
    joined = joining.join(results, cohort)
    assert joined.summary.part_suspicious == 2
    assert {volume for volume, _ in joined.part_pictures} == {"q0", "q1"}
    monkeypatch.setattr(joining, "MOST_PARTS", 1)
    joined = joining.join(results, cohort)
    assert [volume for volume, _ in joined.part_pictures] == ["q1"], "the one that stands out most"


def test_a_slice_flagged_by_a_part_alone_is_not_verified_as_a_whole(
    results, volumes, cohort, monkeypatch
):
    asked = []
    verify = verifying.verify_flagged

    def counted(flagged, *arguments, **options):
        asked.append(len(flagged))
        return verify(flagged, *arguments, **options)

    monkeypatch.setattr(verifying, "verify_flagged", counted)
    joined = joining.join(results, cohort)
    encoder = get_encoder("builtin", input_size=96)
    whole = sum(
        row.verdict in (Verdict.COPY, Verdict.SUSPICIOUS) and row.flagged_by != PART
        for row in joined.slices
    )
    done = verifying.verify_result(joined, volumes, cohort, encoder)
    assert asked == [whole]
    assert all(row.verified is None for row in done.slices if row.flagged_by == PART)
    assert "Only the" not in done.summary.verification
