"""The 3D Slicer module: has a generative MRI model copied its training patients?

Only what Slicer looks for is here; the work is in MemorizationIndexLib.
"""

# Names are Slicer's.
# ruff: noqa: D102, N802, N803, N806

import importlib
import sys
from pathlib import Path

import slicer
from slicer.i18n import tr as _
from slicer.i18n import translate
from slicer.ScriptedLoadableModule import (
    ScriptedLoadableModule,
    ScriptedLoadableModuleLogic,
    ScriptedLoadableModuleTest,
    ScriptedLoadableModuleWidget,
)
from slicer.util import VTKObservationMixin

LIBRARY = "MemorizationIndexLib"


class MemorizationIndex(ScriptedLoadableModule):
    """What the module list shows."""

    def __init__(self, parent):
        ScriptedLoadableModule.__init__(self, parent)
        parent.title = _("Memorization Index")
        parent.categories = [translate("qSlicerAbstractCoreModule", "Quantification")]
        parent.dependencies = []
        parent.contributors = ["The MemorizationIndex founders"]
        parent.helpText = (
            _(
                "Tells which slices of a synthetic MRI volume copy a training patient, and whom. "
                "Choose the volume, open or build a reference cohort of the training patients, and "
                "press Apply. MR images only; a pass means that no copy was found, not that the "
                "volume is private. For research, not for clinical decisions."
            )
            + self.getDefaultModuleDocumentationLink()
        )
        parent.acknowledgementText = _(
            "The index is that of Deo et al., A Calibrated Memorization Index (MI) for Detecting "
            "Training Data Leakage in Generative MRI Models, arXiv:2602.13066, 2026. The optional "
            "encoder is MRI-CORE by the Mazurowski Lab of Duke University."
        )
        slicer.app.connect("startupCompleted()", registerSampleData)


def registerSampleData():
    """Offer the phantoms in the Sample Data module: computed on this machine, no download."""
    try:
        import SampleData
    except ImportError:
        return
    icon = Path(__file__).parent / "Resources" / "Icons" / "MemorizationIndexPhantoms.png"
    SampleData.SampleDataLogic.registerCustomSampleDataSource(
        category="Memorization Index",
        sampleName="SyntheticPhantomMRI",
        thumbnailFileName=str(icon),
        customDownloader=_makeSample,
    )


def _makeSample(_source):
    logic = slicer.util.getModuleLogic("MemorizationIndex")
    return [logic.makePhantoms()[0]]


class MemorizationIndexWidget(ScriptedLoadableModuleWidget, VTKObservationMixin):
    """Loads the .ui file and tells the panel what the application does."""

    def __init__(self, parent=None):
        ScriptedLoadableModuleWidget.__init__(self, parent)
        VTKObservationMixin.__init__(self)
        self.logic = None
        self.panel = None

    def setup(self):
        ScriptedLoadableModuleWidget.setup(self)
        from MemorizationIndexLib.gui.panel import Panel

        uiWidget = slicer.util.loadUI(self.resourcePath("UI/MemorizationIndex.ui"))
        self.layout.addWidget(uiWidget)
        self.ui = slicer.util.childWidgetVariables(uiWidget)
        uiWidget.setMRMLScene(slicer.mrmlScene)
        self.logic = MemorizationIndexLogic()
        self.panel = Panel(self.ui, self.logic)
        scene = slicer.mrmlScene
        self.addObserver(scene, slicer.vtkMRMLScene.StartCloseEvent, self.onSceneStartClose)
        self.addObserver(scene, slicer.vtkMRMLScene.EndCloseEvent, self.onSceneReady)
        self.addObserver(scene, slicer.vtkMRMLScene.EndImportEvent, self.onSceneReady)
        self.addObserver(scene, slicer.vtkMRMLScene.NodeAddedEvent, self.onNodeAdded)
        slicer.app.connect("aboutToQuit()", self.onQuit)
        self.initializeParameterNode()

    def cleanup(self):
        """Called when the module is reloaded or unloaded, and when Slicer quits."""
        slicer.app.disconnect("aboutToQuit()", self.onQuit)
        self.removeObservers()
        if self.panel is not None:
            self.panel.close()
            self.panel = None

    def enter(self):
        self.initializeParameterNode()

    def exit(self):
        if self.panel is not None:
            self.panel.leave()

    def initializeParameterNode(self):
        if self.panel is not None and not slicer.mrmlScene.IsClosing():
            self.panel.set_parameter_node(self.logic.getParameterNode())

    def onSceneStartClose(self, _caller=None, _event=None):
        if self.panel is not None:
            self.panel.scene_closes()

    def onSceneReady(self, _caller=None, _event=None):
        if self.parent.isEntered:
            self.initializeParameterNode()

    def onNodeAdded(self, _caller=None, _event=None):
        if self.panel is not None and not slicer.mrmlScene.IsBatchProcessing():
            self.panel.hide_outputs()

    def onQuit(self):
        if self.panel is not None:
            self.panel.close()

    def onReload(self):
        # Slicer runs only this file anew; the library would stay as it was.
        for name in [name for name in sys.modules if name.partition(".")[0] == LIBRARY]:
            del sys.modules[name]
        importlib.invalidate_caches()
        ScriptedLoadableModuleWidget.onReload(self)


class MemorizationIndexLogic(ScriptedLoadableModuleLogic):
    """The module for scripts; needs neither the panel nor a main window.

    Example, to be run with ``Slicer --no-main-window --python-script check.py``::

        logic = slicer.util.getModuleLogic("MemorizationIndex")
        cohort = logic.buildCohort(["/data/training"], "/data/training.micohort")
        volume = slicer.util.loadVolume("/data/synthetic.nrrd")
        result = logic.score(volume, cohort)
        print(result.summary.finding)
        for row in result.slices:
            print(row.slice, row.verdict.value, row.oni, row.nearest_subject)
        logic.showResult(volume, result)
        slicer.util.saveScene("/data/checked.mrb")
        slicer.util.exit()
    """

    def buildCohort(self, inputs, path, *, wait=True, **options):
        """Build a reference cohort of training patients.

        Args:
            inputs: Files or folders, or scalar volume nodes; not both.
            path: The file to write (``.micohort``).
            wait: Return when it is done; otherwise return the running job at once.
            options: ``encoder`` ("auto", "builtin", "mri-core" or one's own), ``inputSize`` in
                pixels (0 for the encoder's own), ``protocol``, ``plane``, ``device``,
                ``batchSize`` (slices at once, MRI-CORE only; 0 for automatic), ``keepPictures``
                (store thumbnails), ``hashNames`` (store no subject names), ``findParts`` (let
                checks find copied parts of slices too, for which pictures of 112 pixels are
                stored; calibrated protocol only).

        Returns:
            The path; the Job if not ``wait``.

        Raises:
            JobError: It was not built; the message says why.
            SceneError: A node cannot be used.
        """
        job = self.cohortJob(inputs, path, **options)
        job.start()
        if not wait:
            return job
        job.wait()
        return Path(path)

    def score(self, volumes, cohort, *, allFrames=False, wait=True, inProcess=False, **options):
        """Check volumes against a cohort.

        Args:
            volumes: A scalar volume node or several.
            cohort: Path of the cohort file.
            allFrames: Check all frames of a sequence, not only the one shown.
            wait: Return when it is done; otherwise return the running job at once, whose
                ``on_progress``, ``on_volume`` and ``on_end`` may be set.
            inProcess: Compute in this process instead of in one of its own: blocks the
                application and cannot be cancelled.
            options: ``alpha``, ``plane``, ``device``, ``batchSize`` (slices at once, MRI-CORE only;
                0 for automatic).

        Returns:
            An AuditResult; the Job if not ``wait``.

        Raises:
            JobError: It did not finish; its ``result`` has the volumes that did.
            SceneError: A volume cannot be checked.
        """
        from MemorizationIndexLib.gui.auditing import audit_here
        from MemorizationIndexLib.gui.inputs import flag_foreign, read_inputs

        plane = options.get("plane", "auto")
        inputs, read = read_inputs(
            _asList(volumes), self._plane(cohort, plane), all_frames=allFrames
        )
        if inProcess:
            result = audit_here(read, Path(cohort), **options)
        else:
            job = self.auditJob(read, Path(cohort), **options)
            job.start()
            if not wait:
                self._remembered = (job, inputs)
                return job
            result = job.wait()
        result = flag_foreign(result, inputs)
        self._remembered = (result, inputs)
        return result

    def showResult(self, volumes, result, *, plane="auto", allFrames=False, showSubjects=False):
        """Write a result into the scene: segmentation, ONI overlay, table and plot.

        Args:
            volumes: The nodes that were scored, in the same order.
            result: What :meth:`score` returned.
            plane: The plane that was scored.
            allFrames: As in :meth:`score`.
            showSubjects: Write the names of reference subjects into the table.

        Returns:
            One SceneResult per volume.

        Raises:
            SceneError: A volume is gone or has changed since it was scored.
        """
        from MemorizationIndexLib.gui.inputs import read_inputs, show_inputs
        from MemorizationIndexLib.scene.errors import SceneError

        what, inputs = getattr(self, "_remembered", (None, None))
        if what is None or (what is not result and getattr(what, "result", None) is not result):
            inputs, _read = read_inputs(_asList(volumes), plane, all_frames=allFrames)
        shown, problems = show_inputs(inputs, result, show_subjects=showSubjects)
        if problems:
            raise SceneError(" ".join(problems))
        return shown

    def makePhantoms(self, **options):
        """Make phantom patients, a cohort of them and a volume that copies some of their slices.

        Args:
            options: ``numbers`` (``patients``, ``slices``, ``size``) and ``input_size``, to make
                less and faster.

        Returns:
            The volume's node, and the path of the cohort.
        """
        job = self.demoJob(**options)
        job.start()
        job.wait()
        returned = job.outcome.returned
        return self.loadPhantom(Path(returned["volume"])), Path(returned["cohort"])

    # What the panel uses besides

    def auditJob(self, volumes, cohort, *, alpha=0.01, plane="auto", device="auto", batchSize=0):
        """Return a job, not yet started, that scores volumes of the library."""
        from MemorizationIndexLib.gui.jobs import Job

        job = {"kind": "score", "cohort": str(cohort), "alpha": alpha, "plane": plane}
        return Job({**job, "device": device, "batch_size": batchSize}, volumes)

    def cohortJob(
        self,
        inputs,
        path,
        *,
        encoder="auto",
        inputSize=0,
        protocol="calibrated",
        plane="auto",
        device="auto",
        batchSize=0,
        keepPictures=True,
        hashNames=False,
        findParts=False,
    ):
        """Return a job, not yet started, that builds a cohort of paths or of volume nodes."""
        from MemorizationIndexLib.gui.inputs import read_inputs
        from MemorizationIndexLib.gui.jobs import Job

        inputs = _asList(inputs)
        job = {
            "kind": "build",
            "path": str(path),
            "encoder": encoder,
            "input_size": inputSize,
            "protocol": protocol,
            "plane": plane,
            "device": device,
            "batch_size": batchSize,
            "thumbnails": keepPictures,
            "anonymize": hashNames,
            "parts": findParts,
        }
        if inputs and not all(isinstance(each, (str, Path)) for each in inputs):
            return Job(job, read_inputs(inputs, plane)[1])
        return Job({**job, "inputs": [str(each) for each in inputs]})

    def demoJob(self, **options):
        """Return a job, not yet started, that makes the phantoms; see :meth:`makePhantoms`."""
        folder = Path(slicer.app.temporaryPath) / "MemorizationIndexPhantoms"
        return self.workerJob({"kind": "demo", "folder": str(folder), **options})

    def workerJob(self, job):
        """Return any other job of the worker, not yet started."""
        from MemorizationIndexLib.gui.jobs import Job

        return Job(job)

    def cohortFacts(self, path):
        """Return what a cohort file says about itself."""
        from MemorizationIndexLib.gui.auditing import cohort_facts

        return cohort_facts(Path(path))

    def loadPhantom(self, folder):
        """Add the phantoms' synthetic volume to the scene."""
        from MemorizationIndexLib.gui.auditing import add_volume

        return add_volume(folder)

    def _plane(self, cohort, plane):
        return self.cohortFacts(cohort).plane if plane == "auto" else plane


def _asList(value):
    if isinstance(value, (str, Path)) or hasattr(value, "GetClassName"):
        return [value]
    return list(value)


class MemorizationIndexTest(ScriptedLoadableModuleTest):
    """What runs in the application: on phantoms, from the cohort to the scene."""

    def setUp(self):
        slicer.mrmlScene.Clear()

    def runTest(self):
        """Called by Reload and Test; the extension factory runs each test by itself."""
        for test in (self.test_PanelOpens, self.test_PhantomsAreFound):
            self.setUp()
            test()

    def test_PanelOpens(self):
        """The panel opens without PyTorch, network and main window."""
        widget = slicer.util.getModuleWidget("MemorizationIndex")
        self.assertFalse(widget.ui.applyButton.enabled)

    def test_PhantomsAreFound(self):
        """The slices that the synthetic phantom copies are found and shown."""
        from MemorizationIndexLib.gui.packages import torch_problem
        from MemorizationIndexLib.results import Verdict

        if torch_problem():
            self.skipTest(torch_problem())
        logic = MemorizationIndexLogic()
        volume, cohort = logic.makePhantoms()
        result = logic.score(volume, cohort)
        self.assertGreater(sum(row.verdict is Verdict.COPY for row in result.slices), 3)
        shown = logic.showResult(volume, result)[0]
        self.assertEqual(shown.table.GetNumberOfRows(), len(result.slices))
        self.assertEqual(shown.segmentation.GetSegmentation().GetNumberOfSegments(), 4)
        self.assertEqual(
            shown.overlay.GetImageData().GetDimensions(), volume.GetImageData().GetDimensions()
        )
