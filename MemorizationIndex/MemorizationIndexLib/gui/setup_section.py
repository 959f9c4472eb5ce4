"""Setup: what the computation needs, whether it is there, and a button that mends it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import qt
from slicer.i18n import tr as _

from .dialogs import Dialogs
from .jobs import Job
from .packages import DeclinedError, PackageError, install_torch, installed_version, torch_problem
from .process import Outcome
from .settings import setting
from .widgets import connect, menu_of, standard_icon

MRI_CORE = "mri-core"
KEYS = ("torch", "weights", "device")


@dataclass(frozen=True)
class Need:
    """One thing that the computation needs.

    Attributes:
        key: ``torch``, ``weights`` or ``device``.
        problem: What is wrong, in a sentence; empty if nothing is.
        state: How it is if nothing is wrong.
    """

    key: str
    problem: str
    state: str


def needs(encoder: str, device_problem: str) -> list[Need]:
    """Return what an audit with this encoder needs, without loading anything."""
    found = [Need("torch", torch_problem(), f"PyTorch {installed_version('torch')} is installed.")]
    if encoder == MRI_CORE:
        from ..encoders.weights import weights_state

        state = weights_state()
        problem = "" if state.present else _("MRI-CORE's weights are not on this machine.")
        if not state.present and state.origin != "data folder":
            problem = _("The weights file {path} is not there.").format(path=state.path)
        found.append(Need("weights", problem, _("MRI-CORE's weights are there.")))
    if not found[0].problem:
        found.append(Need("device", device_problem, _("Not tested yet.")))
    return found


class SetupSection:
    """Shows what is missing and mends it; hidden when all is well.

    Args:
        ui: The panel's widgets.
        dialogs: Asks the user.
        logic: Makes jobs for the worker.
        run: Starts a job; its second argument is called when it has ended.
        say: Shows a message of a kind in the panel.
        changed: Called when something may be mended.

    Attributes:
        device: What the last test of the device said.
        device_problem: Why the device cannot be used, as far as known.
    """

    def __init__(
        self,
        ui: Any,
        dialogs: Dialogs,
        logic: Any,
        *,
        run: Callable[[Job, Callable[[Job, Outcome], None]], None],
        say: Callable[[str, str], None],
        changed: Callable[[], None],
    ) -> None:
        self.device = self.device_problem = ""
        self._ui, self._dialogs, self._logic = ui, dialogs, logic
        self._run, self._say, self._changed = run, say, changed
        self._menu = menu_of(
            ui.weightsToolButton,
            [
                (_("Download MRI-CORE's weights…"), self.fetch_weights),
                (_("Use a weights file…"), self.choose_weights),
                (_("Open the folder"), self.open_weights_folder),
                (_("Remove the downloaded weights…"), self.remove_weights),
            ],
        )
        self._disconnect = connect(
            [
                (ui.torchSetupButton, "clicked()", self.install_torch),
                (ui.weightsSetupButton, "clicked()", self.fetch_weights),
                (ui.deviceSetupButton, "clicked()", self.check_device),
                (ui.deviceTestButton, "clicked()", self.check_device),
            ]
        )

    def close(self) -> None:
        """Let go of the widgets."""
        self._disconnect()

    def needs(self, encoder: str) -> list[Need]:
        """Return what an audit with this encoder needs."""
        return needs(encoder, self.device_problem)

    def show(self, found: list[Need], *, busy: bool) -> None:
        """Show the needs; the buttons wait while something runs."""
        ui = self._ui
        by_key = {need.key: need for need in found}
        any_problem = any(need.problem for need in found)
        ui.setupCollapsibleButton.visible = any_problem
        for key in KEYS:
            need = by_key.get(key)
            icon, label, button = (
                getattr(ui, f"{key}{part}") for part in ("StatusIcon", "StatusLabel", "SetupButton")
            )
            icon.visible = label.visible = any_problem and need is not None
            button.visible = any_problem and need is not None and bool(need.problem)
            button.enabled = not busy
            if need is not None:
                label.text = need.problem or need.state
                name = "SP_MessageBoxWarning" if need.problem else "SP_DialogApplyButton"
                icon.setPixmap(standard_icon(name, 16))
        self._show_weights()

    def _show_weights(self) -> None:
        from ..encoders.weights import weights_state

        state = weights_state()
        origin = {
            "environment": _("named by the environment"),
            "registered": _("a file of yours"),
            "data folder": _("downloaded"),
        }[state.origin]
        self._ui.weightsPathLabel.text = origin if state.present else _("none")
        self._ui.weightsPathLabel.toolTip = str(state.path)

    def forget_device(self) -> None:
        """Another device was chosen: what was said of the former is of no use."""
        self.device = self.device_problem = ""

    def install_torch(self) -> None:
        """Install PyTorch through the PyTorch extension."""
        try:
            install_torch()
        except DeclinedError as error:
            self._say("information", str(error))
        except PackageError as error:
            self._say("error", str(error))
        else:
            self.check_device()
        self._changed()

    def check_device(self) -> None:
        """Let the worker load PyTorch and compute something on the device."""
        job = self._logic.workerJob({"kind": "check", "device": setting("Device")})
        self._run(job, self._on_checked)

    def _on_checked(self, _job: Job, outcome: Outcome) -> None:
        if outcome.kind == "finished":
            self.device_problem = ""
            returned = outcome.returned
            self.device = f"PyTorch {returned['torch']}: {returned['reason']}."
            self._say("information", self.device)
        elif outcome.kind != "cancelled":
            self.device_problem = outcome.message
            self._say("error", outcome.message)

    def fetch_weights(self) -> None:
        """Download MRI-CORE's weights after saying what, from where and how much."""
        from ..encoders import weights

        question = _(
            "Download MRI-CORE's weights (about {size} MB) from Google Drive to {path}?\n\n"
            "Published by its authors at {source}; license: {license}. Nothing of yours is sent. "
            "Without a network, fetch the file elsewhere and choose “Use a weights file…”."
        ).format(
            size=round(weights.APPROXIMATE_SIZE / 1e6),
            path=weights.data_folder() / weights.FILE_NAME,
            source=weights.SOURCE,
            license=weights.LICENSE,
        )
        if self._dialogs.confirm(question):
            self._run(self._logic.workerJob({"kind": "fetch weights"}), self._on_weights)

    def choose_weights(self) -> None:
        """Use a weights file that is on this machine."""
        start = str(setting("LastFolder"))
        path = self._dialogs.choose_file(_("MRI-CORE's weights"), "Weights (*.pth *.pt)", start)
        if path:
            job = self._logic.workerJob({"kind": "register weights", "path": path})
            self._run(job, self._on_weights)

    def _on_weights(self, _job: Job, outcome: Outcome) -> None:
        from ..encoders.weights import BY_HAND

        finished = outcome.kind == "finished"
        text = str(outcome.returned.get("sentence")) if finished else outcome.message
        text = text.replace(BY_HAND, _("choose “Use a weights file…” in Advanced, Weights"))
        quiet = finished or outcome.kind == "cancelled"
        self._say("information" if quiet else "error", text)

    def open_weights_folder(self) -> None:
        """Show the folder of the weights in the system's file manager."""
        from ..encoders import weights

        folder = weights.data_folder()
        if folder.is_dir():
            qt.QDesktopServices.openUrl(qt.QUrl.fromLocalFile(str(folder)))
        else:
            self._say("information", _("Nothing has been downloaded yet."))

    def remove_weights(self) -> None:
        """Delete the downloaded weights after asking; a file of the user's own stays."""
        from ..encoders import weights

        if not self._dialogs.confirm(_("Delete the downloaded weights from this machine?")):
            return
        try:
            weights.remove_weights()
        except (OSError, ValueError) as error:
            self._say("error", str(error))
        self._changed()
