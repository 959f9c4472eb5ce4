"""The nodes this extension owns: found again by what they are for, placed as their volume is.

An output carries the attribute ``MemorizationIndex.Output`` and a node reference to its input, so
that a saved and reloaded scene, where all IDs change, still knows its own nodes.
"""

from __future__ import annotations

from typing import Any

import slicer
import slicer.util

OUTPUT_ATTRIBUTE = "MemorizationIndex.Output"
INPUT_ROLE = "MemorizationIndexInput"


def is_output(node: Any) -> bool:
    """Return whether a node was made by this extension."""
    return node.GetAttribute(OUTPUT_ATTRIBUTE) is not None


def find_output(volume: Any, kind: str, class_name: str) -> Any | None:
    """Return the node of this kind that belongs to ``volume``, or None."""
    for node in slicer.util.getNodesByClass(class_name):
        if node.GetAttribute(OUTPUT_ATTRIBUTE) != kind:
            continue
        if node.GetNodeReferenceID(INPUT_ROLE) == volume.GetID():
            return node
    return None


def find_outputs(volume: Any) -> list[Any]:
    """Return all nodes that belong to ``volume``."""
    nodes = slicer.util.getNodesByClass("vtkMRMLNode")
    return [
        node
        for node in nodes
        if node.GetAttribute(OUTPUT_ATTRIBUTE)
        and node.GetNodeReferenceID(INPUT_ROLE) == volume.GetID()
    ]


def output_node(volume: Any, kind: str, class_name: str, name: str) -> Any:
    """Return the node of this kind that belongs to ``volume``; a new one only if it has none."""
    node = find_output(volume, kind, class_name)
    if node is None:
        node = slicer.mrmlScene.CreateNodeByClass(class_name)
        node.UnRegister(None)
        node.SetName(slicer.mrmlScene.GenerateUniqueName(name))
        # Before it enters the scene: whoever is told of the new node shall know whose it is.
        claim(node, volume, kind)
        node = slicer.mrmlScene.AddNode(node)
    return node


def claim(node: Any, volume: Any, kind: str) -> None:
    """Mark ``node`` as the output of this kind of ``volume``."""
    node.SetAttribute(OUTPUT_ATTRIBUTE, kind)
    node.SetNodeReferenceID(INPUT_ROLE, volume.GetID())


def place_beside(node: Any, volume: Any) -> None:
    """Put a node under the volume's parent transform and beside it in the subject hierarchy."""
    if node.IsA("vtkMRMLTransformableNode"):
        # A segmentation outside its volume's transform silently loses voxels when edited.
        node.SetAndObserveTransformNodeID(volume.GetTransformNodeID())
    hierarchy = slicer.vtkMRMLSubjectHierarchyNode.GetSubjectHierarchyNode(slicer.mrmlScene)
    volume_item = hierarchy.GetItemByDataNode(volume)
    if not volume_item:
        return
    parent = hierarchy.GetItemParent(volume_item)
    item = hierarchy.GetItemByDataNode(node)
    if not item:
        hierarchy.CreateItem(parent, node)
    elif hierarchy.GetItemParent(item) != parent:
        hierarchy.SetItemParent(item, parent)


def remove_outputs(volume: Any) -> None:
    """Remove everything that belongs to ``volume`` from the scene."""
    for node in find_outputs(volume):
        storage = node.GetStorageNode() if node.IsA("vtkMRMLStorableNode") else None
        displays = []
        if node.IsA("vtkMRMLDisplayableNode"):
            displays = [node.GetNthDisplayNode(n) for n in range(node.GetNumberOfDisplayNodes())]
        for owned in (node, storage, *displays):
            if owned is not None and owned.GetScene() is not None:
                slicer.mrmlScene.RemoveNode(owned)
