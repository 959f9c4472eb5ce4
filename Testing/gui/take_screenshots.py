"""Pictures of the panel and of the slice views, to look at and for the README.

``python Testing/gui/take_screenshots.py FOLDER`` draws the panel in five states (empty, running,
results, setup needed, error) at three widths with a light and a dark palette, and the slice views
with verdicts and ONI overlay; with ``--keep`` it also puts the chosen ones into
``Resources/Screenshots``. The audit in them is a real one, of phantoms. Needs what
``Testing/slicer_host/README.md`` lists, and torch.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "MemorizationIndex"), str(ROOT / "Testing"), str(Path(__file__).parent)]
WIDTHS = (320, 400, 600)
NATURAL_FOLDER = "D:/Studies/Synthetic brains/"
WORKER = Path(__file__).with_name("scripted_worker.py")


def palettes():
    import qt

    light = qt.QPalette()
    for role, color in (
        ("Window", "#efefef"), ("WindowText", "#101010"), ("Base", "#ffffff"),
        ("AlternateBase", "#f5f5f5"), ("Text", "#101010"), ("Button", "#efefef"),
        ("ButtonText", "#101010"), ("Highlight", "#2f6fb3"), ("HighlightedText", "#ffffff"),
        ("PlaceholderText", "#808080"), ("ToolTipBase", "#ffffe0"), ("ToolTipText", "#101010"),
    ):  # fmt: skip
        light.setColor(getattr(qt.QPalette, role), qt.QColor(color))
    dark = qt.QPalette()
    for role, color in (
        ("Window", "#2f2f2f"), ("WindowText", "#e6e6e6"), ("Base", "#232323"),
        ("AlternateBase", "#2a2a2a"), ("Text", "#e6e6e6"), ("Button", "#3a3a3a"),
        ("ButtonText", "#e6e6e6"), ("Highlight", "#3d7fc4"), ("HighlightedText", "#ffffff"),
        ("PlaceholderText", "#909090"), ("ToolTipBase", "#404040"), ("ToolTipText", "#e6e6e6"),
    ):  # fmt: skip
        dark.setColor(getattr(qt.QPalette, role), qt.QColor(color))
    for palette, color in ((light, "#9a9a9a"), (dark, "#7d7d7d")):
        for role in ("WindowText", "Text", "ButtonText"):
            palette.setColor(qt.QPalette.Disabled, getattr(qt.QPalette, role), qt.QColor(color))
    return {"light": light, "dark": dark}


class Studio:
    """The panel in the stand-in application, and a folder for the pictures."""

    def __init__(self, folder: Path) -> None:
        from slicer_host.boot import boot
        from slicer_host.scene import host_scene
        from slicer_host.scripted_module import load_module

        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.app = boot()
        import qt

        qt.QApplication.setStyle("Fusion")
        self.scene = host_scene()
        entry = load_module(ROOT / "MemorizationIndex" / "MemorizationIndex.py")
        self.frame = entry.widgetRepresentation()
        self.frame.enter()
        self.widget = self.frame.self()
        # A color legend appears in the views that are open when it is made.
        for name in ("Red", "Green", "Yellow"):
            self.scene.slice_view(name, (420, 420))
        self.panel, self.ui = self.widget.panel, self.widget.ui

    def wait(self, until, seconds: float = 600) -> None:
        import time

        end = time.monotonic() + seconds
        while not until():
            if time.monotonic() > end:
                raise TimeoutError
            self.app.processEvents()
            time.sleep(0.01)

    def shoot(self, state: str) -> None:
        # The phantoms lie in a temporary folder; a user's cohort would not.
        line = self.ui.cohortPathLineEdit
        line.blockSignals(True)
        path = line.currentPath
        if path:
            line.currentPath = NATURAL_FOLDER + Path(path).name
        self._shoot(state)
        line.currentPath = path
        line.blockSignals(False)

    def _shoot(self, state: str) -> None:
        import qt

        for name, palette in palettes().items():
            qt.QApplication.setPalette(palette)
            self.app.processEvents()
            for width in WIDTHS:
                self.frame.resize(width, 200)
                self.frame.show()
                for _ in range(3):
                    self.app.processEvents()
                height = self.frame.layout().totalHeightForWidth(width)
                if height <= 0:
                    height = self.frame.layout().totalSizeHint().height()
                self.frame.resize(width, height)
                for _ in range(3):
                    self.app.processEvents()
                self.ui.resultsTable.scrollTo(self.ui.resultsTable.currentIndex())
                path = self.folder / f"panel_{state}_{name}_{width}.png"
                self.frame.grab().save(str(path))
                wider = self.frame.width if not callable(self.frame.width) else self.frame.width()
                if wider > width:
                    print(f"{path.name}: the panel needs {wider} pixels")

    def play(self, steps, make_job) -> None:
        """Let a scripted worker stand in for a job that lasts or fails."""
        from MemorizationIndexLib.gui import process

        command = process.worker_command
        process.worker_command = lambda folder: [sys.executable, str(WORKER), str(folder)]
        try:
            job = make_job()
            job.process._job["steps"] = steps
            self.panel.run(job, self.panel._on_audit_end)
        finally:
            process.worker_command = command


def main(folder: Path) -> None:
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    studio = Studio(folder)
    panel, logic, ui = studio.panel, studio.widget.logic, studio.ui
    studio.shoot("empty")
    ui.advancedCollapsibleButton.collapsed = False
    studio.shoot("advanced")
    ui.advancedCollapsibleButton.collapsed = True

    from MemorizationIndexLib.gui import packages, setup_section
    from MemorizationIndexLib.gui.parameters import EncoderChoice

    version = packages.installed_version
    for module in (packages, setup_section):
        module.installed_version = lambda name: None if name == "torch" else version(name)
    panel.parameters.encoder = EncoderChoice.MRI_CORE
    panel.update()
    studio.shoot("setup")
    for module in (packages, setup_section):
        module.installed_version = version
    panel.parameters.encoder = EncoderChoice.BUILTIN

    panel.try_phantoms()
    studio.wait(lambda: panel.job is None)
    panel.say("", "")
    seconds_left = {"type": "progress", "stage": "Scoring", "unit": "slices", "total": 160}
    with tempfile.TemporaryDirectory() as place:
        studio.play(
            [
                ["say", {**seconds_left, "done": 0}],
                ["sleep", 1.2],
                ["say", {**seconds_left, "done": 58}],
                ["wait", str(Path(place) / "go on")],
            ],
            lambda: logic.workerJob({"kind": "score"}),
        )
        studio.wait(lambda: ui.progressBar.value == 58)
        studio.shoot("running")
        panel.job.stop()
        panel.job = None
        panel._show_progress(None)
    message = (
        "PyTorch cannot be loaded (DLL load failed while importing _C); install it in Setup, or if "
        "it is installed, uninstall it in the module PyTorch Utils, restart Slicer and install it "
        "again."
    )
    studio.play(
        [
            ["complain", "Traceback (most recent call last):"],
            ["complain", '  File "MemorizationIndexLib/worker.py", line 140, in check'],
            ["complain", "ImportError: DLL load failed while importing _C"],
            ["say", {"type": "failed", "message": message}],
            ["exit", 1],
        ],
        lambda: logic.workerJob({"kind": "score"}),
    )
    studio.wait(lambda: panel.job is None)
    ui.messageDetailsButton.checked = True
    studio.shoot("error")

    panel.apply()
    studio.wait(lambda: panel.job is None)
    ui.messageDetailsButton.checked = False
    rows = panel.results.table.visible_rows()
    copies = [n for n, row in enumerate(rows) if row.verdict.value == "copy"]
    panel.results.table.go_to(copies[1])
    studio.shoot("results")
    shoot_views(studio)


def shoot_views(studio: Studio) -> None:
    """Draw the three slice views, side by side: verdicts, then the ONI overlay."""
    import numpy as np
    from PIL import Image

    panel = studio.panel
    panel.parameters.sideBySide = False
    for name in ("Red", "Green", "Yellow"):
        studio.scene.slice_view(name, (420, 420))
    for file, verdicts, overlay in (("views", True, False), ("views_oni", False, True)):
        panel.parameters.showVerdicts = verdicts
        panel.parameters.showOverlay = overlay
        panel.results.apply_view_choices()
        pictures = []
        for name in ("Red", "Green", "Yellow"):
            view = studio.scene.slice_view(name, (420, 420))
            view.fit()
        rows = panel.results.table.visible_rows()
        copies = [n for n, row in enumerate(rows) if row.verdict.value == "copy"]
        panel.results.table.go_to(0)
        panel.results.table.go_to(copies[1])
        for name in ("Red", "Green", "Yellow"):
            pictures.append(studio.scene.slice_view(name, (420, 420)).pixels())
        gap = np.full((420, 6, 3), 40, np.uint8)
        row = np.hstack([part for one in pictures for part in (one, gap)][:-1])
        Image.fromarray(row).save(studio.folder / f"{file}.png")


CHOSEN = {
    "panel_empty": "panel_empty_light_400",
    "panel_setup": "panel_setup_light_400",
    "panel_running": "panel_running_light_400",
    "panel_error": "panel_error_light_400",
    "panel_results": "panel_results_light_400",
    "panel_results_dark": "panel_results_dark_600",
    "views": "views",
    "views_oni": "views_oni",
}


def keep(folder: Path) -> None:
    """Put the pictures for the README into Resources/Screenshots: cropped and small."""
    import numpy as np
    from PIL import Image

    place = ROOT / "Resources" / "Screenshots"
    place.mkdir(parents=True, exist_ok=True)
    for name, source in CHOSEN.items():
        image = Image.open(folder / f"{source}.png").convert("RGB")
        if name.startswith("panel"):
            pixels = np.asarray(image)
            used = np.flatnonzero((pixels != pixels[-1, 0]).any(axis=(1, 2)))
            image = image.crop((0, 0, image.width, min(int(used[-1]) + 12, image.height)))
        image.save(place / f"{name}.png", optimize=True)


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "screenshots")
    main(target)
    if "--keep" in sys.argv:
        keep(target)
    # Qt, VTK and Python would end in an order that none of them likes.
    sys.stdout.flush()
    os._exit(0)
