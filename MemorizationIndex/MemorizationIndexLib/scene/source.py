"""Which node a running audit belongs to, and whether it still is what was read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import slicer

from .errors import SceneError
from .geometry import ijk_to_ras


@dataclass(frozen=True)
class VolumeSource:
    """A volume node as it was when its voxels were read. Holds no reference to the node.

    Attributes:
        node_id: MRML ID of the node.
        name: Its name in the results.
        image_time: Modification time of its image data.
        geometry: Its dimensions and IJK-to-RAS matrix.
        is_frame: True for the proxy of a sequence, whose image changes with the browser.
    """

    node_id: str
    name: str
    image_time: int
    geometry: tuple[float, ...]
    is_frame: bool = False

    def node(self) -> Any:
        """Return the node.

        Raises:
            SceneError: It was deleted or its voxels or geometry have changed since.
        """
        node = slicer.mrmlScene.GetNodeByID(self.node_id)
        if node is None or node.GetImageData() is None:
            raise SceneError(
                f"'{self.name}' is no longer in the scene; its result is kept, but there is "
                "nothing to show it on."
            )
        if _geometry(node) != self.geometry:
            raise SceneError(
                f"The geometry of '{node.GetName()}' has changed since it was read; press Apply "
                "again."
            )
        if not self.is_frame and node.GetImageData().GetMTime() != self.image_time:
            raise SceneError(
                f"The voxels of '{node.GetName()}' have changed since they were read; press Apply "
                "again."
            )
        return node


def remember(node: Any, *, name: str | None = None, is_frame: bool = False) -> VolumeSource:
    """Return what is needed to recognise ``node`` when its result arrives."""
    return VolumeSource(
        node_id=node.GetID(),
        name=node.GetName() if name is None else name,
        image_time=node.GetImageData().GetMTime(),
        geometry=_geometry(node),
        is_frame=is_frame,
    )


def _geometry(node: Any) -> tuple[float, ...]:
    return (*node.GetImageData().GetDimensions(), *ijk_to_ras(node).ravel().tolist())
