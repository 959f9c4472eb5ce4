"""Results: the finding, the table of slices, what the views show, files to hand on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import qt
import slicer
import slicer.util
from numpy.typing import NDArray
from slicer.i18n import tr as _

from ..colors import VERDICT_COLORS
from ..part_search import NOT_KEPT, OTHER_VERSION
from ..report.pictures import outlined
from ..results import AuditResult, AuditSummary, PartPictures, SliceResult, Verdict
from ..scene.errors import SceneError
from ..scene.navigation import jump_to_slice
from ..scene.overlay import hide_overlay, show_overlay
from ..scene.pairing import hide_reference, restore_layout, show_nearest, show_side_by_side
from ..scene.results import (
    SceneResult,
    activate_table_and_chart,
    find_result,
    rows_of,
    set_segmentation_visible,
)
from ..scene.sequences import frames_of
from ..scene.table import write_table
from .dialogs import Dialogs
from .exporting import KINDS, export
from .inputs import AuditInput, flag_foreign, input_of, show_inputs
from .packages import DeclinedError
from .pictures import pixmap
from .recalling import query_picture, recall, reference_picture
from .results_table import ResultsTable
from .rows import FLAGGED, Subjects, for_part, slice_in_words
from .settings import set_setting, setting
from .widgets import connect, menu_of

PICTURE_SIDE = 128
REMEMBERED = 5
"""Runs of this session that can be shown again with their pictures."""


class ResultsSection:
    """Shows one audit; without one it says so.

    Args:
        ui: The panel's widgets.
        dialogs: Asks the user.
        say: Shows a message of a kind in the panel.

    Attributes:
        result: What was found so far; None before the first volume is finished.
        parameters: The scene's choices; None while there is no scene.
        names: Names seen, which must not appear in diagnostics.
    """

    def __init__(self, ui: Any, dialogs: Dialogs, say: Callable[[str, str], None]) -> None:
        self.ui = ui
        self.result: AuditResult | None = None
        self.parameters: Any = None
        self.names: set[str] = set()
        self._dialogs, self._say = dialogs, say
        self._inputs: list[AuditInput] = []
        self._shown: dict[str, SceneResult] = {}
        self._written: set[str] = set()
        self._layout_before: int | None = None
        self._listed: list[str] = []
        self._listing = False
        # Earlier runs of this session, the latest last, with what they are about.
        self._earlier: list[tuple[AuditResult, list[AuditInput]]] = []
        self._of_scene = True
        self._recalled = self._numbered = False
        self.table = ResultsTable(ui.resultsTable, self._on_row)
        self._menu = menu_of(
            ui.exportButton,
            [(_(KINDS[kind][0]), partial(self.export, kind)) for kind in KINDS],
        )
        self._disconnect = connect(
            [
                (ui.resultVolumeComboBox, "currentIndexChanged(int)", self._on_volume_chosen),
                (ui.showSubjectsCheckBox, "toggled(bool)", self._on_show_subjects),
                (ui.plotButton, "clicked()", self.plot),
                (ui.judgedButton, "toggled(bool)", self._on_judged),
            ]
        )
        ui.legendLabel.text = legend_in_words()
        self._refresh()

    def close(self) -> None:
        """Let go of the widgets."""
        self.leave_side_by_side()
        self.table.close()
        self._disconnect()

    def begin(self, inputs: Sequence[AuditInput]) -> None:
        """Take what is about to be checked; nothing is found yet."""
        self._put_away()
        self._inputs, self.result = list(inputs), None
        self._written = set()
        self._of_scene, self._recalled, self._numbered = True, False, False
        self._refresh()

    def scene_closed(self) -> None:
        """The nodes go; the numbers stay."""
        self.leave_side_by_side()
        self._shown = {}
        # The nodes of another scene have the same IDs.
        self._earlier, self._of_scene = [], False

    def _put_away(self) -> None:
        if self.result is not None and self._of_scene and not self._recalled:
            self._earlier = [*self._earlier, (self.result, self._inputs)][-REMEMBERED:]

    def recall(self, nodes: Sequence[Any]) -> None:
        """Show what was found of some volumes before: in this session, or kept by the scene.

        Nothing happens where one of them is shown already, or nothing is known of them.
        """
        ids = {node.GetID() for node in nodes}
        if self.result is not None and self._of_scene:
            shown = [one for one in self._inputs if one.source.node_id in ids and self._has(one)]
            if shown or not nodes:
                self._list_one_of(shown)
                return
        for number in reversed(range(len(self._earlier))):
            result, inputs = self._earlier[number]
            named = {row.volume for row in result.slices}
            if any(one.source.node_id in ids and named.issuperset(one.names) for one in inputs):
                del self._earlier[number]
                self._put_away()
                self._bring_back(result, inputs, recalled=False, numbered=False)
                self._list_one_of([one for one in inputs if one.source.node_id in ids])
                return
        try:
            recalled = recall(nodes)
        except SceneError as error:
            self._say("warning", str(error))
            return
        if recalled is not None:
            self._put_away()
            self._bring_back(
                recalled.result, recalled.inputs, recalled=True, numbered=recalled.numbered
            )

    def _bring_back(
        self, result: AuditResult, inputs: Sequence[AuditInput], *, recalled: bool, numbered: bool
    ) -> None:
        self.leave_side_by_side()
        self.result, self._inputs = result, list(inputs)
        self._of_scene, self._recalled, self._numbered = True, recalled, numbered
        self._written = {row.volume for row in result.slices}
        self._shown = {}
        for one in inputs:
            node = slicer.mrmlScene.GetNodeByID(one.source.node_id)
            found = find_result(node) if node is not None else None
            if found is not None:
                self._shown[one.source.node_id] = found
        self._note_names(result)
        self._refresh()
        self.apply_view_choices()

    def _note_names(self, result: AuditResult) -> None:
        for name in ("nearest_subject", "nearest_volume", "part_subject", "part_volume"):
            self.names |= {getattr(row, name) or "" for row in result.slices}

    def _has(self, one: AuditInput) -> bool:
        assert self.result is not None
        return {row.volume for row in self.result.slices}.issuperset(one.names)

    def _list_one_of(self, inputs: Sequence[AuditInput]) -> None:
        """List the slices of one of these volumes, unless those listed are of one of them."""
        box = self.ui.resultVolumeComboBox
        names = [name for one in inputs for name in one.names]
        listed = self._listed[box.currentIndex] if 0 <= box.currentIndex < box.count else ""
        if names and listed not in names:
            box.currentIndex = self._listed.index(names[0])

    def count(self) -> tuple[int, int]:
        """Return how many of the volumes are finished, and how many there are."""
        finished = len({row.volume for row in self.result.slices}) if self.result else 0
        return finished, sum(len(one.names) for one in self._inputs)

    def show(self, result: AuditResult, *, complete: bool = True) -> None:
        """Show what is found so far, in the panel and in the scene.

        While it is not complete, only volumes that are new in it are written into the scene.
        """
        result = flag_foreign(result, self._inputs)
        before, self.result = self.result, result
        wanted = [
            one
            for one in self._inputs
            if one.names[0] not in self._written
            or (complete and not self._only_numbers_changed(one, before, result))
        ]
        shown, problems = show_inputs(wanted, result, show_subjects=self.show_subjects())
        self._written |= {row.volume for row in result.slices}
        for one in shown:
            self._shown[one.volume.GetID()] = one
        self._note_names(result)
        self._refresh()
        if shown:
            self._show_in_views(shown[0])
        if problems:
            self._say("warning", " ".join(problems))

    def _only_numbers_changed(
        self, one: AuditInput, before: AuditResult | None, result: AuditResult
    ) -> bool:
        """Bring the table of a volume up to date; False if its views need more than that."""
        name = one.names[0]
        if before is None or one.all_frames or _drawn(before, name) != _drawn(result, name):
            return False
        try:
            node = one.source.node()
        except SceneError:
            return False
        if find_result(node) is None:
            return False
        write_table(
            node,
            rows_of(result, name),
            result.summary,
            name=name,
            axis=one.axis,
            run=result.slices,
            show_subjects=self.show_subjects(),
        )
        return True

    def _show_in_views(self, one: SceneResult) -> None:
        if not any(
            composite.GetBackgroundVolumeID() == one.volume.GetID()
            for composite in slicer.util.getNodesByClass("vtkMRMLSliceCompositeNode")
        ):
            slicer.util.setSliceViewerLayers(background=one.volume, fit=True)
        activate_table_and_chart(one)
        self.apply_view_choices()

    def _refresh(self) -> None:
        ui, result = self.ui, self.result
        ui.resultsWidget.visible = result is not None
        ui.judgedButton.visible = result is not None
        ui.warningsLabel.visible = result is not None and bool(result.summary.warnings)
        ui.showSubjectsCheckBox.enabled = not self._numbered
        ui.showSubjectsCheckBox.toolTip = (
            _("The scene was kept without the names; press Apply to have them again")
            if self._numbered
            else _(
                "Show the names of reference subjects; off, they are numbered. Mind who sees the "
                "screen"
            )
        )
        ui.judgedLabel.visible = result is not None and bool(ui.judgedButton.checked)
        if result is None:
            ui.findingLabel.text = _("Nothing has been checked yet.")
            self._fill_volumes([])
            return
        ui.findingLabel.text = f"<b>{_escaped(result.summary.finding)}</b>"
        ui.warningsLabel.text = " ".join(f"⚠ {text}" for text in result.summary.warnings)
        ui.judgedLabel.text = judgement_in_words(result)
        self._fill_volumes(list(dict.fromkeys(row.volume for row in result.slices)))

    def _fill_volumes(self, names: list[str]) -> None:
        box = self.ui.resultVolumeComboBox
        before = box.currentIndex
        self._listing = True
        try:
            box.clear()
            box.addItems([self._volume_title(name) for name in names])
            box.currentIndex = min(max(before, 0), len(names) - 1)
        finally:
            self._listing = False
        self._listed = names
        box.visible = bool(names)
        box.toolTip = _("The volume whose slices are listed") + "".join(
            f"\n{self._volume_title(name)}" for name in names
        )
        self._fill_table()

    def _volume_title(self, name: str) -> str:
        assert self.result is not None
        rows = [row for row in self.result.slices if row.volume == name]
        flagged = sum(row.verdict in FLAGGED for row in rows)
        return _("{name}: {flagged} of {count} slices flagged").format(
            name=name, flagged=flagged, count=len(rows)
        )

    def _on_volume_chosen(self, _index: int) -> None:
        if not self._listing:
            self._fill_table()

    def _fill_table(self) -> None:
        index = self.ui.resultVolumeComboBox.currentIndex
        rows: list[SliceResult] = []
        if self.result is not None and 0 <= index < len(self._listed):
            rows = [r for r in self.result.slices if r.volume == self._listed[index]]
        self.table.fill(rows, self._subjects())
        self._show_pair(self.table.current())

    def _subjects(self) -> Subjects:
        rows = self.result.slices if self.result is not None else ()
        return Subjects(rows, self.show_subjects(), numbered=self._numbered)

    def _on_judged(self, shown: bool) -> None:
        self.ui.judgedButton.arrowType = qt.Qt.DownArrow if shown else qt.Qt.RightArrow
        self.ui.judgedLabel.visible = shown and self.result is not None

    def show_subjects(self) -> bool:
        """Return whether the names of reference subjects are shown."""
        return bool(self.ui.showSubjectsCheckBox.checked)

    def _on_show_subjects(self, _shown: bool) -> None:
        self._fill_table()
        if self.result is not None and self._shown and not self._numbered:
            self.show(self.result)

    def _on_row(self, row: SliceResult) -> None:
        """Take the views to a slice and show what it copies."""
        self._show_pair(row)
        found = input_of(self._inputs, row.volume)
        if found is None or self.result is None:
            return
        one, frame = found
        try:
            node = one.source.node()
            if frame is not None:
                frames = frames_of(node)
                if frames is not None:
                    frames.browser.SetSelectedItemNumber(frame)
            if self.parameters is not None and self.parameters.sideBySide:
                self._enter_side_by_side()
                show_nearest(self.result, row, show_subjects=self.show_subjects())
            jump_to_slice(node, one.axis, row.slice)
        except SceneError as error:
            self.ui.sliceLabel.text += f"\n{error}"

    def _show_pair(self, row: SliceResult | None) -> None:
        ui, result = self.ui, self.result
        ui.pairWidget.visible = row is not None
        if row is None or result is None:
            return
        words = [slice_in_words(row, result.summary, self._subjects())]
        key = row.volume, row.slice
        if self._recalled or (for_part(row) and key not in result.part_pictures):
            words.append(self._find_pictures(row))
        ui.sliceLabel.text = " ".join(part for part in words if part)
        query, reference = _pair_of(result, row)
        ui.referencePictureTitle.text = (
            _("Reference of the part") if for_part(row) else _("Nearest reference")
        )
        ui.referencePictureLabel.toolTip = (
            _("The slice of the reference cohort that the outlined part is like, turned as it is")
            if for_part(row)
            else _("The nearest slice of the reference cohort")
        )
        for title, label, picture in (
            (ui.queryPictureTitle, ui.queryPictureLabel, query),
            (ui.referencePictureTitle, ui.referencePictureLabel, reference),
        ):
            title.visible = label.visible = picture is not None
            if picture is not None:
                label.setPixmap(pixmap(picture, PICTURE_SIDE - 4))

    def _find_pictures(self, row: SliceResult) -> str:
        """Take a slice's pictures from where they still are; return what to say if there is none.

        The scene keeps none: the volume gives the one, the cohort on disk the other.
        """
        assert self.result is not None
        result, key = self.result, (row.volume, row.slice)
        found = input_of(self._inputs, row.volume)
        if found is not None and key not in result.pictures:
            with contextlib.suppress(SceneError):
                picture = query_picture(*found, row.slice)
                if picture is not None:
                    result.pictures[key] = picture
        if for_part(row):
            if key in result.part_pictures:
                return ""
        elif row.nearest_row is None or row.nearest_row in result.reference_pictures:
            return ""
        cohort = self.parameters.cohort if self.parameters is not None else ""
        picture, why = reference_picture(Path(cohort) if cohort else None, row, result.summary)
        if picture is not None and for_part(row):
            if key in result.pictures:
                result.part_pictures[key] = PartPictures(result.pictures[key], picture)
        elif picture is not None and row.nearest_row is not None:
            result.reference_pictures[row.nearest_row] = picture
        return why

    def _enter_side_by_side(self) -> None:
        if self._layout_before is None:
            self._layout_before = show_side_by_side()

    def leave_side_by_side(self) -> None:
        """Go back to the views as they were before the reference was shown."""
        before, self._layout_before = self._layout_before, None
        if before is not None:
            hide_reference()
            with contextlib.suppress(SceneError):
                restore_layout(before)

    def apply_view_choices(self) -> None:
        """Filter the table and show or hide what is in the views, as chosen."""
        if self.parameters is None:
            return
        self.table.show_flagged_only(self.parameters.flaggedOnly)
        if not self.parameters.sideBySide:
            self.leave_side_by_side()
        for one in self._scene_results():
            set_segmentation_visible(one, self.parameters.showVerdicts)
            if not self.parameters.showOverlay:
                hide_overlay(one.overlay)
        front = self._front()
        if front is not None and self.parameters.showOverlay:
            show_overlay(front.volume, front.overlay)

    def _scene_results(self) -> list[SceneResult]:
        # The user may have deleted any of the nodes since.
        kept = {}
        for node_id in self._shown:
            node = slicer.mrmlScene.GetNodeByID(node_id)
            found = find_result(node) if node is not None else None
            if found is not None:
                kept[node_id] = found
        self._shown = kept
        return list(kept.values())

    def _front(self) -> SceneResult | None:
        """Return the result of the volume whose slices are listed."""
        index = self.ui.resultVolumeComboBox.currentIndex
        results = self._scene_results()
        if 0 <= index < len(self._listed):
            found = input_of(self._inputs, self._listed[index])
            if found is not None:
                for one in results:
                    if one.volume.GetID() == found[0].source.node_id:
                        return one
        return results[0] if results else None

    def plot(self) -> None:
        """Show the plot of the listed volume in the views."""
        front = self._front()
        if front is None:
            self._say("information", _("The volume is no longer in the scene."))
            return
        self.leave_side_by_side()
        slicer.modules.plots.logic().ShowChartInLayout(front.chart)

    def export(self, kind: str) -> None:
        """Write the result, asking where."""
        _title, kinds, name = KINDS[kind]
        start = str(Path(str(setting("LastFolder"))) / name)
        path = self._dialogs.choose_new_file(_("Export"), kinds, start)
        if path:
            self.export_to(kind, Path(path))

    def export_to(self, kind: str, path: Path) -> None:
        """Write the result to a file."""
        assert self.result is not None
        if kind == "report" and self._recalled:
            text = _(
                "The scene keeps the numbers, but not the pictures and the calibration that a "
                "report shows; press Apply, then export the report."
            )
            self._say("information", text)
            return
        set_setting("LastFolder", str(path.parent))
        try:
            export(
                kind,
                self.result,
                path,
                show_subjects=self.show_subjects(),
                confirm=self._dialogs.confirm,
            )
        except DeclinedError as error:
            self._say("information", str(error))
        except OSError as error:
            reason = error.strerror or str(error)
            self._say("error", f"{path} cannot be written: {reason}.")
        except ValueError as error:
            self._say("error", str(error))
        else:
            text = _("Written to {path}.").format(path=path)
            if not self.show_subjects():
                text += " " + _(
                    "Names are replaced by numbers; check “Subject names” to keep them."
                )
            self._say("information", text)


def _pair_of(result: AuditResult, row: SliceResult) -> tuple[NDArray | None, NDArray | None]:
    """Return the pictures of a slice and of the reference slice that its verdict rests on.

    A part that alone flags the slice is outlined in both.
    """
    key = row.volume, row.slice
    query, reference = result.pictures.get(key), None
    if not for_part(row):
        if row.nearest_row is not None:
            reference = result.reference_pictures.get(row.nearest_row)
        return query, reference
    if key in result.part_pictures:
        query, reference = result.part_pictures[key].query, result.part_pictures[key].reference
    window, color = row.part_window, VERDICT_COLORS[Verdict.SUSPICIOUS]
    if window is None:
        return query, reference
    return (
        None if query is None else outlined(query, window, color),
        None if reference is None else outlined(reference, window, color),
    )


def _drawn(result: AuditResult, volume: str) -> list[tuple[int, Verdict, float | None]]:
    """Return what the views and the plot show of a volume."""
    return [(row.slice, row.verdict, row.oni) for row in result.slices if row.volume == volume]


def legend_in_words() -> str:
    """Return which tint of the slice views means which verdict, as rich text."""
    keys = ", ".join(
        f'<span style="color: rgb{VERDICT_COLORS[verdict]}">■</span> {verdict.value}'
        for verdict in (Verdict.COPY, Verdict.SUSPICIOUS)
    )
    return _("In the views: {keys}").format(keys=keys)


def judgement_in_words(result: AuditResult) -> str:
    """Return what must stand beside the finding: rule, reference, encoder, and what it is not."""
    summary = result.summary
    parts = [
        summary.rule,
        f"Reference: {summary.reference_slices} slices of {summary.reference_subjects} people, "
        f"which can certify α = {summary.certifiable_alpha:.2g} at best.",
        f"Encoder {summary.encoder}: {summary.encoder_description}",
        f"An exact copy would have an MI of {summary.exact_copy_mi:.1f}.",
        share_in_words(summary),
        summary.verification,
        parts_in_words(summary),
        "That no copy is found does not mean that the volume is private.",
    ]
    parts = [part for part in parts if part]
    return " ".join(part if part.endswith((".", "!", "?")) else f"{part}." for part in parts)


def parts_in_words(summary: AuditSummary) -> str:
    """Return why copied parts were not looked for; empty if they were, or if nothing is known."""
    if summary.part_threshold is not None or not summary.part_note:
        return ""
    # The library's words name options of the command line.
    why = {
        NOT_KEPT: "the cohort was built without “Find copied parts too”",
        OTHER_VERSION: "the cohort's parts are another version's; build it again",
    }.get(summary.part_note, summary.part_note)
    return f"Copied parts of slices were not looked for: {why}."


def share_in_words(summary: AuditSummary) -> str:
    """Return the estimated share of copies; empty where it cannot be estimated."""
    if summary.share is None or summary.share_low is None or summary.share_high is None:
        return ""
    return (
        f"An estimated {summary.share:.0%} of the slices are copies (95 % interval "
        f"{summary.share_low:.0%} to {summary.share_high:.0%})."
    )


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
