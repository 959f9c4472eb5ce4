"""Stands in for qMRMLSliceView and its ctkVTKSliceView: a slice view drawn off the screen.

The slice logic, the displayable managers and the blending are Slicer's own; only the Qt widget
around the render window is missing.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import slicer
import vtk
from numpy.typing import NDArray
from vtk.util import numpy_support

if TYPE_CHECKING:
    from slicer_host.scene import HostScene

_MANAGERS = (
    "vtkMRMLVolumeGlyphSliceDisplayableManager",
    "vtkMRMLModelSliceDisplayableManager",
    "vtkMRMLCrosshairDisplayableManager",
    "vtkMRMLSegmentationsDisplayableManager2D",
    "vtkMRMLColorLegendDisplayableManager",
)


class SliceView:
    """One slice view in an off-screen window.

    Args:
        host: The scene to show.
        name: Layout name of the view: Red, Green, Yellow or another in the scene.
        size: Width and height in pixels.
    """

    def __init__(self, host: HostScene, name: str, size: tuple[int, int] = (400, 400)) -> None:
        self.logic = host.slice_logic(name)
        self.node = self.logic.GetSliceNode()
        self.renderer = vtk.vtkRenderer()
        self.renderer.SetBackground(0, 0, 0)
        self.window = vtk.vtkRenderWindow()
        self.window.SetOffScreenRendering(1)
        self.window.SetMultiSamples(0)
        self.window.SetSize(*size)
        self.window.AddRenderer(self.renderer)
        self.interactor = vtk.vtkRenderWindowInteractor()
        self.interactor.SetRenderWindow(self.window)
        self.interactor.SetInteractorStyle(vtk.vtkInteractorStyleUser())
        self._mapper = vtk.vtkImageMapper()
        self._mapper.SetColorWindow(255)
        self._mapper.SetColorLevel(127.5)
        self._actor = vtk.vtkActor2D()
        self._actor.SetMapper(self._mapper)
        self._actor.GetProperty().SetDisplayLocationToBackground()
        # Before the displayable managers' props: the order of adding is the order of drawing.
        self.renderer.AddViewProp(self._actor)
        factory = slicer.vtkMRMLSliceViewDisplayableManagerFactory.GetInstance()
        factory.SetMRMLApplicationLogic(host.application_logic)
        for manager in _MANAGERS:
            if not factory.IsDisplayableManagerRegistered(manager):
                factory.RegisterDisplayableManager(manager)
        self.managers = factory.InstantiateDisplayableManagers(self.renderer)
        self.managers.SetMRMLDisplayableNode(self.node)
        self.logic.ResizeSliceNode(*size)

    def resize(self, size: tuple[int, int]) -> None:
        """Change the size of the window, in pixels."""
        self.window.SetSize(*size)
        self.logic.ResizeSliceNode(*size)

    def fit(self) -> None:
        """Fit the view to its background volume, as the view's button does."""
        self.logic.FitSliceToBackground(*self.window.GetSize())

    def pixels(self) -> NDArray[np.uint8]:
        """Render and return the picture, shape (height, width, 3), row 0 at the top."""
        self.logic.UpdatePipeline()
        connection = self.logic.GetImageDataConnection()
        self._actor.SetVisibility(connection is not None)
        if connection is not None:
            self._mapper.SetInputConnection(connection)
        self.window.Render()
        grab = vtk.vtkWindowToImageFilter()
        grab.SetInput(self.window)
        grab.SetInputBufferTypeToRGB()
        grab.ReadFrontBufferOff()
        grab.Update()
        image = grab.GetOutput()
        width, height, _ = image.GetDimensions()
        array = numpy_support.vtk_to_numpy(image.GetPointData().GetScalars())
        return np.ascontiguousarray(array.reshape(height, width, 3)[::-1])

    def save(self, path: Path) -> NDArray[np.uint8]:
        """Render to a PNG file and return the picture."""
        from PIL import Image

        picture = self.pixels()
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(path)
        return picture

    def ras_at(self, row: int, column: int) -> NDArray[np.float64]:
        """Return the world position under a pixel of :meth:`pixels`, millimetres."""
        height = self.window.GetSize()[1]
        point = (column, height - 1 - row, 0, 1)
        return np.array(self.node.GetXYToRAS().MultiplyPoint(point)[:3])

    def close(self) -> None:
        """Release the window and the displayable managers."""
        self.managers.SetMRMLDisplayableNode(None)
        self.window.Finalize()
