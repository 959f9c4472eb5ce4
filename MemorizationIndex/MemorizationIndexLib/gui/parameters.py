"""What the scene keeps of the panel: the parameter node.

Enumerations are kept by name: renaming a member breaks saved scenes.
"""

# Slicer reads the annotations when the class is made, so they are no strings here.
# ruff: noqa: N815

from enum import Enum
from typing import Annotated

from slicer import vtkMRMLScalarVolumeNode
from slicer.i18n import tr as _
from slicer.parameterNodeWrapper import WithinRange, parameterNodeWrapper


class Plane(Enum):
    """The plane of the slices."""

    AUTO = "auto"
    AXIAL = "axial"
    CORONAL = "coronal"
    SAGITTAL = "sagittal"

    def label(self) -> str:
        """Return what the panel shows."""
        return {
            Plane.AUTO: _("as in the cohort"),
            Plane.AXIAL: _("axial"),
            Plane.CORONAL: _("coronal"),
            Plane.SAGITTAL: _("sagittal"),
        }[self]


class Protocol(Enum):
    """How slices are judged."""

    CALIBRATED = "calibrated"
    PAPER = "paper"
    REFERENCE = "reference"

    def label(self) -> str:
        """Return what the panel shows."""
        return {
            Protocol.CALIBRATED: _("calibrated"),
            Protocol.PAPER: _("as in the paper"),
            Protocol.REFERENCE: _("as in the released code"),
        }[self]


class EncoderChoice(Enum):
    """What turns the slices of a new cohort into features."""

    BUILTIN = "builtin"
    MRI_CORE = "mri-core"

    def label(self) -> str:
        """Return what the panel shows."""
        return {
            EncoderChoice.BUILTIN: _("built-in (no download)"),
            EncoderChoice.MRI_CORE: _("MRI-CORE (416 MB of weights)"),
        }[self]


class Frames(Enum):
    """What is checked of a sequence."""

    THIS = "this"
    ALL = "all"

    def label(self) -> str:
        """Return what the panel shows."""
        return {Frames.THIS: _("this frame"), Frames.ALL: _("all frames")}[self]


@parameterNodeWrapper
class MemorizationIndexParameters:
    """What belongs to the scene; choices of the machine are in ``settings``."""

    volumes: list[vtkMRMLScalarVolumeNode]
    frames: Frames = Frames.THIS
    cohort: str = ""
    plane: Plane = Plane.AUTO
    alpha: Annotated[float, WithinRange(0.0001, 0.5)] = 0.01
    protocol: Protocol = Protocol.CALIBRATED
    encoder: EncoderChoice = EncoderChoice.BUILTIN
    inputSize: Annotated[int, WithinRange(0, 2048)] = 0
    keepPictures: bool = True
    hashNames: bool = False
    findParts: bool = False
    flaggedOnly: bool = False
    showVerdicts: bool = True
    showOverlay: bool = False
    sideBySide: bool = True
