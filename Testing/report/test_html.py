from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import MemorizationIndexLib
from MemorizationIndexLib.report import ReportError, write_report
from MemorizationIndexLib.report.html import MOST_ROWS, render
from MemorizationIndexLib.report.pictures import overlay
from MemorizationIndexLib.results import MatchPictures, Verdict
from report.example_result import HOSTILE, clean, example, nothing_scored

VOID = {"meta", "img", "br", "hr", "link", "input"}


class Page(HTMLParser):
    """Tags, attributes and text of a page; complains about unbalanced tags."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not self.open or self.open[-1] not in ("style", "script"):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


@pytest.fixture(scope="module")
def full() -> str:
    return render(example())


@pytest.fixture(scope="module")
def page(full) -> Page:
    return Page(full)


def test_hostile_names_stay_text(page):
    assert sum(tag == "script" for tag, _ in page.tags) == 1
    assert not any(name.startswith("on") for _, found in page.tags for name in found)
    assert not any(found.get("src") == "x" for _, found in page.tags)
    assert not any(tag in ("b", "i") and found == {"x": None} for tag, found in page.tags)
    for name in HOSTILE:
        assert " ".join(name.split()) in page.text


def test_hostile_free_text_stays_text():
    result = clean()
    bad = "<script>alert(1)</script>"
    power = dataclasses.replace(result.summary.power[0], name=bad, description=bad, seen=False)
    summary = dataclasses.replace(
        result.summary,
        **dict.fromkeys(
            ("finding", "rule", "encoder", "encoder_description", "fingerprint", "cohort"), bad
        ),
        **dict.fromkeys(("subject_rule", "protocol", "version", "created", "statistic"), bad),
        warnings=(bad,),
        refused=((bad, bad),),
        power=(power,),
        layers=(bad, "a", "b"),
    )
    unscored = dataclasses.replace(result.slices[0], verdict=Verdict.NOT_SCORED, reason=bad)
    named = dataclasses.replace(result.slices[0], nearest_subject=bad, volume=bad)
    text = render(dataclasses.replace(result, summary=summary, slices=(unscored, named)))
    assert bad not in text
    assert Page(text).text.count(bad) >= 12


def test_page_loads_nothing(full, page):
    for tag, found in page.tags:
        for attribute in ("src", "srcset", "poster", "data", "action"):
            assert (found.get(attribute) or "data:image/png").startswith("data:image/png")
        target = found.get("href") or found.get("xlink:href")
        if target is not None:
            assert target.startswith("#") or tag == "a"
        assert tag not in ("link", "iframe", "object", "embed", "base")
    assert "@import" not in full
    assert all(address.startswith("#") for address in re.findall(r"url\(([^)]*)\)", full))
    policies = [found.get("content") for tag, found in page.tags if tag == "meta"]
    assert any((policy or "").startswith("default-src 'none'") for policy in policies)


def test_the_words_for_the_histogram_are_said_once(full):
    caption = full[full.index("<figcaption>") : full.index("</figcaption>")]
    assert "Slices to the right of the dashed line are suspicious" in caption
    assert "Histogram" not in caption
    assert full.count("Histogram of the statistic") == 1
    for name, threshold, above in (("copy", "0.71", 7), ("suspicious", "0.42", 9)):
        label = f"The threshold of &#39;{name}&#39; lies at {threshold}; {above} scored slices"
        assert label in full


def test_ids_are_unique(page):
    ids = [found["id"] for _, found in page.tags if "id" in found]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize(
    "sentence",
    [
        "7 of 388 scored slices are as similar to a reference slice as known copies are",
        "What this means",
        "“No copy found” is not “private”",
        "24 subjects certify about 0.04, not the 0.01 asked for.",
        "Volumes, slice by slice",
        "Slices, most suspicious first",
        f"The first {MOST_ROWS} of 388 scored slices; slices.csv holds all.",
        "Slices not scored",
        "synthetic-01 : slices 0–1, 22–23",
        "Where your slices lie",
        "What the audit finds of known copies",
        "flipped left to right 120",
        "NOT seen",
        "Copies under 2 disguises would pass unseen here",
        "What this audit cannot see",
        "Too few reference subjects for the level asked for",
        "built-in structure encoder: for trying out",
        "nobody else",
        "Inputs not read",
        "The file ends early; copy it again.",
        "The rule. A slice is suspicious when",
        "the paper's set-level line is 0.68",
        "MI of an exact copy (the ceiling) 11.43",
        "Null mean μ₀ of the similarity 0.2004",
        "Null standard deviation σ₀ 0.0699",
        "Null size 1,440",
        "Reference slices N 1,440",
        "Reference subjects 24",
        "fine: 768, 0.310; middle layer: 768, 0.220; coarse: 768, 0.087",
        "Level α asked for 0.01",
        "arXiv:2602.13066",
        "MemorizationIndex 0.1.0 · 2026-11-30 07:21 UTC",
    ],
)
def test_page_says(page, sentence):
    assert sentence in page.text


def test_every_slice_has_a_cell_with_letter_and_words(page):
    result = example(pictures=False)
    cells = [found for tag, found in page.tags if tag == "li" and "aria-label" in found]
    assert len(cells) == len(result.slices)
    assert all(cell["title"] == cell["aria-label"] for cell in cells)
    assert sum("copy" in (cell["class"] or "") for cell in cells) == 7


def test_most_suspicious_comes_first():
    order = re.findall(r'data-label="Verdict">.*?</td>', render(example()))
    words = [re.sub("<[^>]*>", "", row).split()[-1] for row in order]
    assert words[:9] == ["copy"] * 7 + ["suspicious"] * 2
    assert set(words[9:]) == {"evidence"}


def test_a_volume_says_how_many_slices_name_the_subject():
    result = example()
    slices = list(result.slices)
    copy = next(number for number, one in enumerate(slices) if one.verdict is Verdict.COPY)
    slices[copy] = dataclasses.replace(slices[copy], nearest_subject="sub-99")
    of_volume = [one for one in slices if one.volume == slices[copy].volume]
    flagged = [one for one in of_volume if one.verdict in (Verdict.COPY, Verdict.SUSPICIOUS)]
    words = Page(render(dataclasses.replace(result, slices=tuple(slices)))).text
    assert f"most often named: sub-07, by {len(flagged) - 1} of {len(flagged)} flagged" in words


def test_pictures_are_inside_the_page(page):
    images = [found["src"] for tag, found in page.tags if tag == "img"]
    assert MOST_ROWS < len(images) <= 2 * MOST_ROWS


def test_nothing_scored_is_said():
    page = Page(render(nothing_scored()))
    for sentence in (
        "Nothing could be scored",
        "No slice was scored.",
        "blank volume : slices 0, 2",
        "no finite values",
        "This audit was not tried on known copies.",
        "Threshold of “copy” undefined",
        "There is no statistic to draw.",
    ):
        assert sentence in page.text
    assert "None" not in page.text


def test_a_pass_is_no_copy_found():
    page = Page(render(clean()))
    assert "No copy found" in page.text
    assert "None" not in page.text
    assert "nan" not in page.text


def test_many_volumes_collapse_and_are_counted():
    text = render(example((6,) * 60, names=("first",), pictures=False))
    assert "10 less suspicious volumes" in Page(text).text
    text = render(example((3,) * 520, names=("first",), pictures=False))
    assert "The 500 most suspicious of 520 volumes are shown" in Page(text).text


def test_a_very_long_volume_is_binned_and_keeps_its_copies():
    text = render(example((1000,), pictures=False))
    assert "Each cell stands for 3 neighboring slices" in text
    assert re.search(r'<li class="copy"[^>]*title="Slices \d+–\d+, gravest: Slice', text)


def test_page_is_the_same_twice():
    assert render(example()) == render(example())


def test_hidden_subjects_are_nowhere():
    result = example()
    slices = tuple(
        dataclasses.replace(one, subject=f"Doe^{one.subject}", nearest_subject="Roe^Jane")
        for one in result.slices
    )
    volumes = tuple(
        dataclasses.replace(one, subject=f"Doe^{one.subject}", nearest_subject="Roe^Jane")
        for one in result.volumes
    )
    summary = dataclasses.replace(
        result.summary,
        finding="7 slices copy Roe^Jane.",
        warnings=("Roe^Jane has one slice; 24 subjects are few.",),
        refused=(("/home/Roe^Jane.nii", "/home/Roe^Jane.nii is truncated"),),
    )
    result = dataclasses.replace(result, slices=slices, volumes=volumes, summary=summary)
    assert "Roe^Jane" in render(result)
    text = render(result, hide_subjects=True)
    for secret in ("Roe^Jane", "Doe^", "synthetic-01", "data:image/png", "nii.gz"):
        assert secret not in text
    words = Page(text).text
    assert "reference subject 1 has one slice; 24 subjects are few." in words
    assert "Of 388 scored slices, 7 called copy and 2 called suspicious." in words
    assert "Names are hidden." in words


def test_missing_jinja_is_a_sentence(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ReportError, match="pip install jinja2"):
        write_report(clean(), tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []


def test_no_plotting_library_is_needed(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert render(clean()).count("<svg") == 2


def test_numbers_that_are_none_are_refused():
    result = clean()
    one = dataclasses.replace(result.slices[0], mi=float("nan"))
    with pytest.raises(ReportError, match="nan"):
        render(dataclasses.replace(result, slices=(one,)))
    with pytest.raises(ReportError, match="no histogram"):
        render(dataclasses.replace(result, null=np.array([0.1, np.nan])))


def test_a_picture_of_another_kind_is_refused():
    result = example((9,), pictures=False)
    scored = next(one for one in result.slices if one.oni is not None)
    picture = {(scored.volume, scored.slice): np.zeros((8, 8, 3), np.uint8)}
    with pytest.raises(ReportError, match="uint8 of shape"):
        render(dataclasses.replace(result, pictures=picture))


def with_match(result):
    """Verify the first flagged slice of an example and picture its match."""
    flagged = next(n for n, one in enumerate(result.slices) if one.verdict is Verdict.COPY)
    slices = list(result.slices)
    one = dataclasses.replace(
        slices[flagged], pose="flipped left–right", ssim=0.913, ncc=0.987, verified=True
    )
    slices[flagged] = one
    gray = np.arange(64, dtype=np.uint8).reshape(8, 8)
    match = MatchPictures(gray, gray, gray, gray, (gray / 63).astype(np.float32))
    summary = dataclasses.replace(
        result.summary,
        share=0.12,
        share_low=0.05,
        share_high=0.221,
        verification="Verified: the rule.",
    )
    return dataclasses.replace(
        result,
        slices=tuple(slices),
        summary=summary,
        match_pictures={(one.volume, one.slice): match},
    )


def test_a_match_is_shown_with_what_laying_it_over_gave():
    page = render(with_match(example((24,), pictures=False)))
    assert "Matches, laid over the slice" in page
    assert "SSIM 0.91, NCC 0.99" in page and "Verified: the rule." in page
    assert "flipped left–right" in page
    assert page.count("where they are alike</small>") == 1
    assert "12 % of the slices are copies (95 % interval 5 % to 22.1 %)" in page
    summary = example((24,), pictures=False).summary
    called = f"{summary.copies} of {summary.scored} ("
    assert f"the share of slices that are called a copy, {called}" in page


def test_a_hidden_report_shows_no_match():
    page = render(with_match(example((24,), pictures=False)), hide_subjects=True)
    assert "Matches, laid over the slice" not in page and "data:image" not in page
    assert "SSIM 0.91, NCC 0.99" in page


def test_without_evidence_nothing_is_claimed():
    result = example((24,), pictures=False)
    why = "Matches were not verified: their images are gone."
    summary = dataclasses.replace(result.summary, share_note="too few.", verification=why)
    page = render(dataclasses.replace(result, summary=summary))
    assert "Matches, laid over the slice" not in page and "laid over:" not in page
    assert "of the slices are copies (95" not in page and "need not be the share" not in page
    assert f"<li>{why}</li>" in page and "not estimated: too few." in page


def test_color_marks_only_what_is_more_alike_than_by_chance():
    gray = np.full((1, 3), 100, np.uint8)
    colored = overlay(gray, np.array([[0.2, 0.5, 1.0]], np.float32))
    assert colored.shape == (1, 3, 3)
    assert (colored[0, :2] == 100).all()
    red, green, blue = (int(part) for part in colored[0, 2])
    assert red > green + 50 and red > blue + 50


def test_file_is_utf8_and_replaced_whole(tmp_path):
    path = tmp_path / "report.html"
    path.write_text("former", encoding="utf-8")
    write_report(example((9, 9, 9, 9), pictures=False), path)
    assert "Müller-Ångström_größe" in path.read_text(encoding="utf-8")
    assert [one.name for one in tmp_path.iterdir()] == ["report.html"]


def test_importing_the_room_needs_neither_jinja_nor_matplotlib():
    code = (
        "import sys, MemorizationIndexLib.report, MemorizationIndexLib.phantoms\n"
        "bad = {'jinja2', 'matplotlib', 'scipy', 'SimpleITK', 'PIL', 'torch'} & set(sys.modules)\n"
        "sys.exit(f'imported {bad}' if bad else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | path_of_library())


def path_of_library() -> dict[str, str]:
    return {"PYTHONPATH": str(Path(MemorizationIndexLib.__file__).parents[1])}


def test_histogram_draws_what_there_is():
    from MemorizationIndexLib.report.figures import histogram

    result = example((9,), pictures=False)
    for part in (
        {"null": np.empty(0)},
        {"statistics": np.empty(0)},
        {"control": {}},
        {"null": np.zeros(40), "control": {}, "statistics": np.zeros(1)},
    ):
        for width in (9.0, 4.2):
            svg = histogram(dataclasses.replace(result, **part), width=width)
            assert svg.startswith("<svg")
            ElementTree.fromstring(svg)
            assert ("none</text>" in svg) == any(not len(v) for v in part.values())


def test_histogram_is_to_scale():
    """The outline of a group, read back, holds the shares of its values."""
    from MemorizationIndexLib.report.figures import LEFT, PANEL, histogram

    values = np.concatenate([np.full(30, 0.1), np.full(10, 0.9)])
    result = dataclasses.replace(
        example((9,), pictures=False), null=values, control={}, statistics=np.array([0.9])
    )
    low, high = 0.1 - 0.02 * 0.8, 0.9 + 0.02 * 0.8
    root = ElementTree.fromstring(histogram(result))
    paths = [path.attrib for path in root.iter("{http://www.w3.org/2000/svg}path")]
    outline = next(path["d"] for path in paths if path.get("fill") == "#9aa7b4")
    steps = re.findall(r"V([\d.]+)H([\d.]+)", outline)
    bottom = float(outline.split("V")[-1])
    heights = np.array([bottom - float(height) for height, _ in steps])
    ends = np.array([float(end) for _, end in steps])
    full = heights.max()
    assert full == pytest.approx(PANEL / 1.05, abs=0.1)
    assert np.flatnonzero(heights > 1).size == 2
    assert heights[heights > 1] == pytest.approx([full, full / 3], abs=0.1)
    right = ends[-1]
    for value, end in zip((0.1, 0.9), ends[heights > 1], strict=True):
        place = LEFT + (value - low) / (high - low) * (right - LEFT)
        assert place - 0.1 <= end <= place + (right - LEFT) / len(ends) + 0.1
    lines = [path["d"] for path in paths if path.get("stroke-width") == "1.6"]
    marked = {float(line[1:].split()[0]) for line in lines if "V" in line}
    for threshold in (result.summary.suspicious_threshold, result.summary.copy_threshold):
        place = LEFT + (threshold - low) / (high - low) * (right - LEFT)
        assert min(abs(place - x) for x in marked) < 0.1
