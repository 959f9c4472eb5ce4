"""The panel: what the user chooses, what runs, what was found.

The widgets are those of ``Resources/UI/MemorizationIndex.ui``; the work is the module logic's.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ctk
import qt
import slicer
import slicer.util
from slicer.i18n import tr as _

from ..comparison.part_reference import SIDE
from ..memory import free_memory, in_words
from ..results import AuditResult
from ..scene.errors import SceneError
from ..scene.outputs import is_output
from ..scene.reading import foreign_warning
from ..scene.sequences import frames_of
from .diagnostics import diagnostics
from .dialogs import Dialogs
from .estimating import memory_of_build, memory_of_check, shortage
from .inputs import problem_of, read_inputs
from .jobs import Job, Progress
from .messages import duration_in_words
from .parameters import EncoderChoice, Frames, MemorizationIndexParameters, Protocol
from .process import Outcome
from .results_section import ResultsSection
from .settings import DEVICES, set_setting, setting
from .setup_section import Need, SetupSection
from .widgets import connect, standard_icon

COHORT_FILTER = "Reference cohort (*.micohort)"
COHORT_SUFFIX = ".micohort"
FREE_MEMORY_LASTS = 5.0
"""Seconds for which the free memory is taken to stay as it is."""


class Panel:
    """Ties the widgets to the logic.

    Args:
        ui: The widgets by name.
        logic: The module's logic: makes jobs, shows results.
        dialogs: Asks the user.
    """

    def __init__(self, ui: Any, logic: Any, dialogs: Dialogs | None = None) -> None:
        self.ui = ui
        self.logic = logic
        self.dialogs = dialogs or Dialogs()
        self.parameters: Any = None
        self.job: Job | None = None
        self._after: Callable[[Job, Outcome], None] = _nothing
        self._gui_tag: Any = None
        self._parameter_tag: int | None = None
        self._updating = self._closed = False
        self._facts: Any = None
        self._facts_key: tuple[str, float] | None = None
        self._facts_problem = ""
        self._outcome = ""
        self._free: tuple[float, int | None] | None = None
        self._log: list[str] = []
        self.results = ResultsSection(ui, self.dialogs, self.say)
        self.setup = SetupSection(
            ui, self.dialogs, logic, run=self.run, say=self.say, changed=self.update
        )
        self._fill_choices()
        self._disconnect = self._connect_widgets()
        self.say("", "")
        self._show_progress(None)
        self.update()

    # --- life ---------------------------------------------------------------------------------

    def set_parameter_node(self, node: Any) -> None:
        """Take the choices of a scene; None while there is no scene to choose in."""
        if self.parameters is not None:
            self.parameters.disconnectGui(self._gui_tag)
            self.parameters.RemoveObserver(self._parameter_tag)
        self.parameters = None
        if node is not None:
            # The decorator gives the class its constructor.
            self.parameters = MemorizationIndexParameters(node)  # type: ignore[call-arg]
        self.results.parameters = self.parameters
        if self.parameters is not None:
            self.hide_outputs()
            self._gui_tag = self.parameters.connectGui(self.ui)
            self._parameter_tag = self.parameters.AddObserver("ModifiedEvent", self._on_parameters)
            self._check_only_volume()
        self._on_parameters()

    def scene_closes(self) -> None:
        """Stop what runs; what is finished stays in the table, though not in any scene."""
        stopped = self.job is not None
        self._stop_job()
        self.results.scene_closed()
        self.set_parameter_node(None)
        if stopped:
            self._outcome = "scene closed"
            text = _("The scene was closed, so the work was stopped.")
            if self.results.result is not None:
                text += " " + _("Finished volumes are listed below.")
            self.say("information", text)
        self.update()

    def leave(self) -> None:
        """The user goes to another module: what runs goes on."""
        self.results.leave_side_by_side()

    def close(self) -> None:
        """End everything: the module is reloaded, unloaded or Slicer quits; may come twice."""
        if self._closed:
            return
        self._closed = True
        self._stop_job()
        self.set_parameter_node(None)
        self.results.close()
        self.setup.close()
        self._disconnect()

    def _stop_job(self) -> None:
        job, self.job = self.job, None
        if job is not None:
            job.stop()
            self._log += job.log
        self._show_progress(None)

    # --- widgets ------------------------------------------------------------------------------

    def _fill_choices(self) -> None:
        ui = self.ui
        labels = {
            "auto": _("automatic"),
            "cpu": "CPU",
            "cuda": "CUDA (NVIDIA)",
            "mps": "MPS (Apple)",
        }
        ui.deviceComboBox.addItems([labels[device] for device in DEVICES])
        ui.deviceComboBox.currentIndex = DEVICES.index(_known_device())
        ui.batchSizeSpinBox.value = setting("BatchSize")
        # A cohort is a folder.
        ui.cohortPathLineEdit.filters = ctk.ctkPathLineEdit.Dirs
        ui.cohortPathLineEdit.settingKey = "MemorizationIndex/CohortHistory"

    def _connect_widgets(self) -> Callable[[], None]:
        ui = self.ui
        return connect(
            [
                (ui.applyButton, "clicked()", self.apply_or_cancel),
                (ui.volumesSelector, "checkedNodesChanged()", self._on_volumes_checked),
                (ui.cohortPathLineEdit, "currentPathChanged(QString)", self._on_cohort_path),
                (ui.buildFromVolumesButton, "clicked()", self.build_from_volumes),
                (ui.buildFromFolderButton, "clicked()", self.build_from_folder),
                (ui.demoButton, "clicked()", self.try_phantoms),
                (ui.deviceComboBox, "currentIndexChanged(int)", self._on_device),
                (ui.batchSizeSpinBox, "valueChanged(int)", self._on_batch_size),
                (ui.diagnosticsButton, "clicked()", self.copy_diagnostics),
                (ui.messageDetailsButton, "toggled(bool)", self._on_details),
            ]
        )

    # --- choices ------------------------------------------------------------------------------

    def chosen_nodes(self) -> list[Any]:
        """Return the volume nodes to check that are still in the scene."""
        if self.parameters is None:
            return []
        return [node for node in self.parameters.volumes if node is not None]

    def cohort_path(self) -> Path | None:
        """Return the chosen cohort's path, or None."""
        if self.parameters is None or not self.parameters.cohort:
            return None
        return Path(self.parameters.cohort)

    def _check_only_volume(self) -> None:
        # With one volume in the scene there is nothing to choose.
        nodes = [n for n in self._offered_nodes() if not problem_of([n])]
        if self.parameters is not None and not self.chosen_nodes() and len(nodes) == 1:
            self.parameters.volumes = nodes

    def _offered_nodes(self) -> list[Any]:
        # The selector's nodes() is no slot: Python does not see it in the application.
        selector = self.ui.volumesSelector
        return [selector.nodeFromIndex(index) for index in range(selector.nodeCount())]

    def hide_outputs(self) -> None:
        """Take what this module made (ONI overlays) from the volumes to choose from."""
        volumes = slicer.util.getNodesByClass("vtkMRMLScalarVolumeNode")
        hidden = [node.GetID() for node in volumes if is_output(node)]
        self.ui.volumesSelector.sortFilterProxyModel().hiddenNodeIDs = hidden

    def _on_volumes_checked(self) -> None:
        if self._updating or self.parameters is None:
            return
        self.parameters.volumes = list(self.ui.volumesSelector.checkedNodes())

    def _on_cohort_path(self, path: str) -> None:
        if not self._updating and self.parameters is not None:
            self.parameters.cohort = path.strip()

    def _on_parameters(self, *_a: Any) -> None:
        if self._updating:
            return
        self._updating = True
        try:
            cohort = self.parameters.cohort if self.parameters is not None else ""
            if self.ui.cohortPathLineEdit.currentPath != cohort:
                self.ui.cohortPathLineEdit.currentPath = cohort
            wanted = self.chosen_nodes()
            for node in self._offered_nodes():
                state = qt.Qt.Checked if node in wanted else qt.Qt.Unchecked
                if self.ui.volumesSelector.checkState(node) != state:
                    self.ui.volumesSelector.setCheckState(node, state)
        finally:
            self._updating = False
        self._read_facts()
        self.update()
        self.results.apply_view_choices()
        self._recall_results()

    def _recall_results(self) -> None:
        """Show what is known of the chosen volumes; of any volume where none is chosen."""
        if self.job is not None or self.parameters is None:
            return
        nodes = self.chosen_nodes()
        if not nodes:
            nodes = slicer.util.getNodesByClass("vtkMRMLScalarVolumeNode")
        self.results.recall(nodes)

    def _on_device(self, index: int) -> None:
        set_setting("Device", DEVICES[index])
        self.setup.forget_device()
        self.update()

    def _on_batch_size(self, value: int) -> None:
        set_setting("BatchSize", value)
        self._update_memory()

    def _read_facts(self) -> None:
        path = self.cohort_path()
        if path is None:
            self._facts, self._facts_key, self._facts_problem = None, None, ""
            return
        try:
            key = (str(path), path.stat().st_mtime)
        except OSError:
            key = (str(path), 0.0)
        if key == self._facts_key:
            return
        self._facts_key, self._facts, self._facts_problem = key, None, ""
        try:
            self._facts = self.logic.cohortFacts(path)
        except (OSError, ValueError) as error:
            self._facts_problem = str(error)

    # --- what is to be seen -------------------------------------------------------------------

    def encoder(self) -> str:
        """Return the encoder that the next job needs."""
        if self._facts is not None:
            return str(self._facts.encoder)
        return "builtin" if self.parameters is None else str(self.parameters.encoder.value)

    def readiness(self) -> tuple[bool, str]:
        """Return whether Apply can run, and what it lacks."""
        if self.parameters is None:
            return False, _("There is no scene.")
        lacking = [need for need in self._needs() if need.problem and need.key != "device"]
        if lacking:
            return False, lacking[0].problem + " " + _("See Setup above.")
        problem = problem_of(self.chosen_nodes())
        if problem:
            return False, problem
        if self._facts is None:
            return False, self._facts_problem or _("Open or build a reference cohort.")
        return True, ""

    def _needs(self) -> list[Need]:
        return self.setup.needs(self.encoder())

    def update(self) -> None:
        """Bring every widget in line with the choices and with what runs."""
        ui = self.ui
        busy = self.job is not None
        ready, why = self.readiness()
        self.setup.show(self._needs(), busy=busy)
        ui.applyButton.text = _("Cancel") if busy else _("Apply")
        ui.applyButton.enabled = busy or ready
        ui.applyButton.toolTip = (
            _("Stop; finished volumes are kept") if busy else why or _("Check the chosen volumes")
        )
        for widget in (ui.volumesCollapsibleButton, ui.cohortCollapsibleButton):
            widget.enabled = not busy
        ui.advancedCollapsibleButton.enabled = not busy
        ui.buildFromVolumesButton.enabled = bool(self.chosen_nodes())
        if not busy:
            ui.progressLabel.text = "" if ready else why
            ui.progressLabel.visible = not ready
        self._update_volume_note()
        self._update_cohort_facts()
        self._update_batch_size()
        self._update_parts()
        self._update_memory()

    def _update_volume_note(self) -> None:
        nodes = self.chosen_nodes()
        sequences = [node for node in nodes if frames_of(node) is not None]
        self.ui.framesTitle.visible = self.ui.framesComboBox.visible = bool(sequences)
        notes = [problem_of(nodes)] if nodes else []
        notes += [foreign_warning(node) for node in nodes]
        text = " ".join(note for note in notes if note)
        self.ui.volumesNoteLabel.text = text
        self.ui.volumesNoteLabel.visible = bool(text)

    def _update_batch_size(self) -> None:
        encoders = {self.encoder()}
        if self.parameters is not None:
            encoders.add(self.parameters.encoder.value)
        acts = EncoderChoice.MRI_CORE.value in encoders
        ui = self.ui
        ui.batchSizeTitle.enabled = ui.batchSizeSpinBox.enabled = acts
        ui.batchSizeSpinBox.toolTip = (
            _(
                "Slices that MRI-CORE computes at once, for cohorts and for checks; fewer need "
                "less memory. Halved by itself where memory runs out; kept for this machine"
            )
            if acts
            else _("Only MRI-CORE has this choice; the encoder chosen now needs little memory")
        )

    def _knows_parts(self) -> bool:
        # The other protocols have no null for parts.
        return self.parameters is None or self.parameters.protocol is Protocol.CALIBRATED

    def _update_parts(self) -> None:
        box, acts = self.ui.findPartsCheckBox, self._knows_parts()
        box.enabled = acts
        box.toolTip = (
            _(
                "Checks against a cohort that you build now then also find a quarter of a slice "
                "that was pasted into another. Pictures of {side} pixels of all training slices "
                "are stored in the cohort for it, recognizable ones; for 1000 slices it takes "
                "about 30 s and 41 MB more, and each check about 8 ms a slice"
            ).format(side=SIDE)
            if acts
            else _("Only the calibrated protocol knows an error rate for copied parts")
        )

    def _update_memory(self) -> None:
        ui = self.ui
        if self._facts is None:
            ui.memoryLabel.text = _("known once a cohort is chosen")
            return
        needed, free = self._memory_of_check(), self._free_memory()
        text = _("about {needed} for a check").format(needed=in_words(needed))
        if free is not None:
            text += _("; {free} free").format(free=in_words(free))
        ui.memoryLabel.text = f"⚠ {text}" if shortage(needed, free) else text

    def _memory_of_check(self) -> int:
        return memory_of_check(
            self._facts,
            self.chosen_nodes(),
            all_frames=self.parameters is not None and self.parameters.frames is Frames.ALL,
            batch=setting("BatchSize"),
            device=setting("Device"),
        )

    def _free_memory(self) -> int | None:
        # Asked of the system at most once in a few seconds: on a Mac that starts a program.
        now = time.monotonic()
        if self._free is None or now - self._free[0] > FREE_MEMORY_LASTS:
            self._free = (now, free_memory())
        return self._free[1]

    def _enough_memory(self, needed: int) -> bool:
        """Ask before a run that needs more memory than is free; say how it could need less."""
        self._free = None
        lacking = shortage(needed, self._free_memory())
        if not lacking or self.dialogs.confirm(lacking + "\n\n" + _("Start it anyway?")):
            return True
        text = _(
            "Not started. Close other programs, check fewer volumes, or choose fewer slices at "
            "once or a smaller input size in Advanced."
        )
        self.say("information", f"{lacking} {text}")
        return False

    def _update_cohort_facts(self) -> None:
        if self._facts is not None:
            text = self._facts.sentence()
        else:
            text = self._facts_problem or _(
                "The training patients: open a folder named ….micohort, or build one."
            )
        self.ui.cohortFactsLabel.text = text

    def say(self, kind: str, text: str) -> None:
        """Show a message: an error, a warning or an information; an empty text hides it."""
        ui = self.ui
        ui.messageFrame.visible = bool(text)
        ui.messageLabel.text = text
        ui.messageDetailsButton.visible = bool(self._log)
        ui.messageDetailsButton.checked = False
        ui.messageDetailsText.visible = False
        if text:
            icons = {
                "error": "SP_MessageBoxCritical",
                "warning": "SP_MessageBoxWarning",
                "information": "SP_MessageBoxInformation",
            }
            ui.messageIconLabel.setPixmap(standard_icon(icons[kind], 20))

    def _on_details(self, shown: bool) -> None:
        self.ui.messageDetailsText.setPlainText("\n".join(self._log))
        self.ui.messageDetailsText.visible = shown

    # --- what runs ----------------------------------------------------------------------------

    def apply_or_cancel(self) -> None:
        """The one button: start, or stop what runs."""
        if self.job is not None:
            self.ui.progressLabel.text = _("Stopping…")
            self.job.cancel()
        else:
            self.apply()

    def apply(self) -> None:
        """Check the chosen volumes against the cohort."""
        ready, why = self.readiness()
        if not ready:
            self.say("warning", why)
            return
        parameters, cohort = self.parameters, self.cohort_path()
        assert cohort is not None
        if not self._enough_memory(self._memory_of_check()):
            return
        plane = parameters.plane.value
        try:
            inputs, volumes = read_inputs(
                self.chosen_nodes(),
                self._facts.plane if plane == "auto" else plane,
                all_frames=parameters.frames is Frames.ALL,
            )
            job = self.logic.auditJob(
                volumes,
                cohort,
                alpha=parameters.alpha,
                plane=plane,
                device=setting("Device"),
                batchSize=setting("BatchSize"),
            )
        except (SceneError, OSError) as error:
            self.say("error", str(error))
            return
        self.results.begin(inputs)
        for volume in volumes:
            self.results.names |= {volume.name, volume.subject, volume.source}
        self.run(job, self._on_audit_end)

    def run(self, job: Job, after: Callable[[Job, Outcome], None]) -> None:
        """Start a job; ``after`` is called with it and its outcome when it has ended."""
        self._log = []
        self.say("", "")
        self.job, self._after = job, after
        job.on_progress = self._show_progress
        job.on_note = self._on_note
        job.on_volume = self._on_volume
        job.on_silence = self._on_silence
        job.on_end = self._on_end
        self._show_progress(Progress(_("Starting"), 0, 0, "", None))
        try:
            job.start()
        except OSError as error:
            self.job = None
            self._show_progress(None)
            self.say("error", _("The work cannot begin: {error}").format(error=error))
        self.update()

    def _show_progress(self, progress: Progress | None) -> None:
        ui = self.ui
        ui.progressBar.visible = progress is not None
        if progress is None:
            ui.progressLabel.text = ""
            return
        ui.progressLabel.visible = True
        ui.progressBar.maximum = progress.total
        ui.progressBar.value = min(progress.done, progress.total)
        ui.progressLabel.text = progress_in_words(progress)

    def _on_note(self, text: str) -> None:
        self._log.append(text)

    def _on_silence(self, seconds: float) -> None:
        if seconds > 0:
            text = _(
                "The worker has not answered for {seconds} s. Wait, or press Cancel; finished "
                "volumes are kept."
            ).format(seconds=round(seconds))
            self.say("warning", text)
        else:
            self.say("", "")

    def _on_volume(self, result: AuditResult) -> None:
        self.results.show(result, complete=False)

    def _on_end(self, outcome: Outcome) -> None:
        job, self.job = self.job, None
        assert job is not None
        self._log += job.log
        self._outcome = f"{outcome.kind}: {outcome.message}".rstrip(": ")
        self._show_progress(None)
        self.say("", "")
        after, self._after = self._after, _nothing
        after(job, outcome)
        self.update()

    def _on_audit_end(self, job: Job, outcome: Outcome) -> None:
        if outcome.kind == "finished":
            if job.result is not None:
                self.results.show(job.result)
            return
        finished, total = self.results.count()
        kept = _("{finished} of {total} volumes were finished and are kept.").format(
            finished=finished, total=total
        )
        kind = "information" if outcome.kind == "cancelled" else "error"
        self.say(kind, f"{outcome.message} {kept if total > 1 or finished else ''}".strip())

    # --- cohorts ------------------------------------------------------------------------------

    def build_from_volumes(self) -> None:
        """Make a cohort of the checked volumes, asking where to keep it."""
        path = self.dialogs.choose_new_file(_("Keep the cohort as"), COHORT_FILTER, _last_folder())
        if path:
            self.build_cohort(self.chosen_nodes(), Path(path))

    def build_from_folder(self) -> None:
        """Make a cohort of a folder, asking which and where to keep it."""
        folder = self.dialogs.choose_folder(_("Folder of the training patients"), _last_folder())
        if not folder:
            return
        path = self.dialogs.choose_new_file(_("Keep the cohort as"), COHORT_FILTER, folder)
        if path:
            self.build_cohort([folder], Path(path))

    def build_cohort(self, inputs: list[Any], path: Path) -> None:
        """Make a cohort of nodes or of paths and choose it."""
        if path.suffix != COHORT_SUFFIX:
            path = path.with_name(path.name + COHORT_SUFFIX)
        set_setting("LastFolder", str(path.parent))
        from_paths = any(isinstance(one, (str, Path)) for one in inputs)
        needed = memory_of_build(
            self.parameters.encoder.value,
            None if from_paths else inputs,
            input_size=self.parameters.inputSize,
            plane=self.parameters.plane.value,
            pictures=self.parameters.keepPictures,
            batch=setting("BatchSize"),
            device=setting("Device"),
        )
        if not self._enough_memory(needed):
            return
        try:
            job = self.logic.cohortJob(
                inputs,
                path,
                encoder=self.parameters.encoder.value,
                inputSize=self.parameters.inputSize,
                protocol=self.parameters.protocol.value,
                plane=self.parameters.plane.value,
                device=setting("Device"),
                batchSize=setting("BatchSize"),
                keepPictures=self.parameters.keepPictures,
                hashNames=self.parameters.hashNames,
                findParts=self.parameters.findParts and self._knows_parts(),
            )
        except (SceneError, OSError) as error:
            self.say("error", str(error))
            return
        self.run(job, lambda _job, outcome: self._on_cohort_end(outcome, path))

    def _on_cohort_end(self, outcome: Outcome, path: Path) -> None:
        if outcome.kind != "finished":
            kind = "information" if outcome.kind == "cancelled" else "error"
            self.say(kind, outcome.message)
            return
        self._facts_key = None
        if self.parameters is not None:
            self.parameters.cohort = str(path)
        self._on_parameters()
        returned = outcome.returned
        notes = [str(note) for note in returned.get("warnings", [])]
        refused = [str(note) for note in returned.get("refused", [])]
        if refused:
            self._log += refused
            notes.append(_("{count} inputs were left out; see Details.").format(count=len(refused)))
        text = _("The cohort is built and chosen.")
        self.say("warning" if notes else "information", " ".join([text, *notes]))

    def try_phantoms(self) -> None:
        """Make phantom patients, a cohort of them, and a volume that copies some."""
        self.run(self.logic.demoJob(), self._on_demo_end)

    def _on_demo_end(self, _job: Job, outcome: Outcome) -> None:
        if outcome.kind != "finished":
            kind = "information" if outcome.kind == "cancelled" else "error"
            self.say(kind, outcome.message)
            return
        if self.parameters is None:
            return
        node = self.logic.loadPhantom(Path(outcome.returned["volume"]))
        slicer.util.setSliceViewerLayers(background=node, fit=True)
        self._facts_key = None
        self.parameters.volumes = [node]
        self.parameters.cohort = str(outcome.returned["cohort"])
        self._on_parameters()
        text = _("The phantoms are ready: press Apply to find the slices that were copied.")
        self.say("information", text)

    # --- for a bug report ---------------------------------------------------------------------

    def copy_diagnostics(self) -> None:
        """Put a text for a bug report on the clipboard."""
        text = self.diagnostics()
        slicer.app.clipboard().setText(text)
        self.say("information", _("Versions, settings and the last log are copied."))

    def diagnostics(self) -> str:
        """Return a text for a bug report, without patient data."""
        chosen: dict[str, Any] = {"encoder": self.encoder()}
        names = set(self.results.names) | {node.GetName() for node in self.chosen_nodes()}
        if self.parameters is not None:
            for name in ("frames", "plane", "protocol"):
                chosen[name] = getattr(self.parameters, name).value
            chosen["alpha"] = self.parameters.alpha
            names.add(str(self.cohort_path() or ""))
        return diagnostics(
            nodes=self.chosen_nodes(),
            names=names,
            parameters=chosen,
            outcome=self._outcome,
            device=self.setup.device,
            log=self._log,
        )


def _nothing(*_a: Any) -> None:
    pass


def progress_in_words(progress: Progress) -> str:
    """Return progress as a sentence: "Encoding: 34 of 160 slices, about 1 min left"."""
    stalled = ""
    if progress.seconds_stalled:
        stalled = f", nothing new for {duration_in_words(progress.seconds_stalled)}"
    if progress.total <= 0:
        return f"{progress.stage}…{stalled}"
    done, total = progress.done, progress.total
    if progress.unit == "bytes":
        amount = f"{done / 1e6:.0f} of {total / 1e6:.0f} MB"
    else:
        amount = f"{done} of {total} {progress.unit}".rstrip()
    left = ""
    if progress.seconds_left is not None and done < total:
        left = f", {duration_in_words(progress.seconds_left)} left"
    return f"{progress.stage}: {amount}{left}{stalled}"


def _known_device() -> str:
    device = str(setting("Device"))
    return device if device in DEVICES else "auto"


def _last_folder() -> str:
    return str(setting("LastFolder"))
