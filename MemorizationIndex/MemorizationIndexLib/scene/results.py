"""AuditResult → everything the scene shows of one volume."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import slicer

from ..results import AuditResult, SliceResult, Verdict
from .errors import SceneError
from .geometry import slice_count
from .outputs import find_output, remove_outputs
from .overlay import KIND as OVERLAY_KIND
from .overlay import write_overlay
from .plot import CHART_KIND, write_plot
from .segmentation import KIND as SEGMENTATION_KIND
from .segmentation import write_segmentation
from .source import VolumeSource
from .table import KIND as TABLE_KIND
from .table import write_table


@dataclass(frozen=True)
class SceneResult:
    """The nodes that show one volume's result.

    Attributes:
        volume: The audited vtkMRMLScalarVolumeNode.
        segmentation: vtkMRMLSegmentationNode with the verdicts.
        overlay: vtkMRMLScalarVolumeNode with the ONI.
        table: vtkMRMLTableNode with the numbers.
        chart: vtkMRMLPlotChartNode of ONI over slices.
    """

    volume: Any
    segmentation: Any
    overlay: Any
    table: Any
    chart: Any


def write_result(
    source: VolumeSource,
    result: AuditResult,
    axis: int,
    *,
    volume_name: str | None = None,
    show_subjects: bool = False,
    segmentation: Any = None,
) -> SceneResult:
    """Write what an audit found about one volume into the scene.

    Nothing is made before every check has passed; a second call updates the nodes of the first.

    Args:
        source: The volume as it was when its voxels were read.
        result: What the audit found.
        axis: Array axis that the volume was sliced along (0 K, 1 J, 2 I).
        volume_name: The volume's name in the result; the source's name if None.
        show_subjects: Write the reference's subject names into the table.
        segmentation: An existing segmentation node to write the verdicts to.

    Raises:
        SceneError: The volume is gone or has changed, or the result does not fit it.
    """
    volume = source.node()
    name = source.name if volume_name is None else volume_name
    rows = rows_of(result, name)
    ordered = slices_in_order(volume, rows, axis)
    verdicts = [row.verdict if row else Verdict.NOT_SCORED for row in ordered]
    return SceneResult(
        volume=volume,
        segmentation=write_segmentation(volume, verdicts, axis, segmentation=segmentation),
        overlay=write_overlay(volume, [row.oni if row else None for row in ordered], axis),
        table=write_table(
            volume,
            rows,
            result.summary,
            name=name,
            axis=axis,
            run=result.slices,
            show_subjects=show_subjects,
        ),
        chart=write_plot(volume, [row for row in ordered if row], result.summary),
    )


def find_result(volume: Any) -> SceneResult | None:
    """Return the result nodes a volume has, for instance in a reloaded scene; None if any lacks."""
    parts = {
        "segmentation": find_output(volume, SEGMENTATION_KIND, "vtkMRMLSegmentationNode"),
        "overlay": find_output(volume, OVERLAY_KIND, "vtkMRMLScalarVolumeNode"),
        "table": find_output(volume, TABLE_KIND, "vtkMRMLTableNode"),
        "chart": find_output(volume, CHART_KIND, "vtkMRMLPlotChartNode"),
    }
    if any(node is None for node in parts.values()):
        return None
    return SceneResult(volume=volume, **parts)


def remove_result(volume: Any) -> None:
    """Remove a volume's result nodes from the scene; the volume itself stays."""
    remove_outputs(volume)


def set_segmentation_visible(result: SceneResult, visible: bool) -> None:
    """Show or hide the verdicts in the views."""
    result.segmentation.GetDisplayNode().SetVisibility(int(visible))


def activate_table_and_chart(result: SceneResult) -> None:
    """Make the result's table and chart the ones that table and plot views show."""
    selection = slicer.mrmlScene.GetSingletonNode("Singleton", "vtkMRMLSelectionNode")
    if selection is not None:
        selection.SetActiveTableID(result.table.GetID())
        selection.SetActivePlotChartID(result.chart.GetID())


def rows_of(result: AuditResult, volume_name: str) -> list[SliceResult]:
    """Return the slices of one volume.

    Raises:
        SceneError: The result has none.
    """
    rows = [row for row in result.slices if row.volume == volume_name]
    if not rows:
        raise SceneError(f"The result has no slice of a volume named '{volume_name}'.")
    return rows


def slices_in_order(volume: Any, rows: list[SliceResult], axis: int) -> list[SliceResult | None]:
    """Return the result of each slice along ``axis``, None where the audit left a slice out.

    Raises:
        SceneError: A slice lies outside the volume or occurs twice.
    """
    count = slice_count(volume, axis)
    ordered: list[SliceResult | None] = [None] * count
    for row in rows:
        if not 0 <= row.slice < count:
            raise SceneError(
                f"The result names slice {row.slice} of '{volume.GetName()}', which has {count} "
                f"slices along array axis {axis}; run the audit again."
            )
        if ordered[row.slice] is not None:
            raise SceneError(
                f"The result names slice {row.slice} of '{volume.GetName()}' twice; give each "
                "volume of a run its own name."
            )
        ordered[row.slice] = row
    return ordered
