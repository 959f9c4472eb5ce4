"""ONI over the slices as an MRML plot, with the thresholds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import slicer
import vtk

from ..colors import VERDICT_COLORS, Color
from ..results import AuditSummary, SliceResult, Verdict
from .outputs import find_output, output_node, place_beside

TABLE_KIND = "PlotTable"
CHART_KIND = "Plot"
SERIES_KIND = "PlotSeries"
# The statistic that MI is computed from; a threshold on another one has no place on the ONI axis.
SIMILARITY = "similarity"
_LINE_COLOR: Color = (22, 28, 36)


def threshold_oni(summary: AuditSummary, threshold: float | None) -> float | None:
    """Return the ONI at which a slice reaches a threshold; None where that is not defined.

    The paper's equations: MI = (s − μ0) / sqrt(σ0² + 1e-8), ONI = −tanh(MI).
    """
    if threshold is None or summary.statistic != SIMILARITY:
        return None
    mi = (threshold - summary.null_mean) / math.sqrt(summary.null_sd**2 + 1e-8)
    return -math.tanh(mi)


def write_plot(volume: Any, slices: Sequence[SliceResult], summary: AuditSummary) -> Any:
    """Plot the ONI of a volume's slices.

    Args:
        volume: The audited volume node.
        slices: Its results; slices without a score leave a gap.
        summary: Where the thresholds are.

    Returns:
        The vtkMRMLPlotChartNode.
    """
    scored = [row for row in slices if row.oni is not None]
    lines = {
        "Suspicious from here down": (
            threshold_oni(summary, summary.suspicious_threshold),
            VERDICT_COLORS[Verdict.SUSPICIOUS],
        ),
        "Copy from here down": (
            threshold_oni(summary, summary.copy_threshold),
            VERDICT_COLORS[Verdict.COPY],
        ),
    }
    table = _write_plot_table(volume, scored, {name: line[0] for name, line in lines.items()})
    chart = output_node(volume, CHART_KIND, "vtkMRMLPlotChartNode", f"{volume.GetName()} ONI plot")
    was_modified = chart.StartModify()
    try:
        chart.RemoveAllPlotSeriesNodeIDs()
        series = [_series(volume, table, "ONI", _LINE_COLOR, is_line=False)]
        for name, (level, color) in lines.items():
            if level is not None:
                series.append(_series(volume, table, name, color, is_line=True))
            else:
                _remove_series(volume, name)
        for one in series:
            chart.AddAndObservePlotSeriesNodeID(one.GetID())
        chart.SetTitle(volume.GetName())
        chart.SetXAxisTitle("Slice")
        chart.SetYAxisTitle("ONI (−1 copy, 0 typical, +1 novel)")
        chart.SetYAxisRangeAuto(False)
        chart.SetYAxisRange(-1.05, 1.05)
        chart.SetLegendVisibility(len(series) > 1)
    finally:
        chart.EndModify(was_modified)
    place_beside(chart, volume)
    return chart


def _write_plot_table(
    volume: Any, scored: Sequence[SliceResult], levels: dict[str, float | None]
) -> Any:
    table = output_node(volume, TABLE_KIND, "vtkMRMLTableNode", f"{volume.GetName()} ONI plot data")
    was_modified = table.StartModify()
    try:
        table.RemoveAllColumns()
        columns = {
            "Slice": [float(row.slice) for row in scored],
            "ONI": [float(row.oni) for row in scored if row.oni is not None],
        }
        for name, level in levels.items():
            if level is not None:
                columns[name] = [level] * len(scored)
        for name, values in columns.items():
            array = vtk.vtkDoubleArray()
            array.SetName(name)
            for value in np.asarray(values, float):
                array.InsertNextValue(value)
            table.AddColumn(array)
    finally:
        table.EndModify(was_modified)
    place_beside(table, volume)
    return table


def _series(volume: Any, table: Any, column: str, color: Color, *, is_line: bool) -> Any:
    node = output_node(
        volume, _series_kind(column), "vtkMRMLPlotSeriesNode", f"{volume.GetName()} {column}"
    )
    node.SetAndObserveTableNodeID(table.GetID())
    node.SetXColumnName("Slice")
    node.SetYColumnName(column)
    node.SetName(column)
    node.SetPlotType(slicer.vtkMRMLPlotSeriesNode.PlotTypeScatter)
    node.SetColor(*(part / 255 for part in color))
    if is_line:
        node.SetMarkerStyle(slicer.vtkMRMLPlotSeriesNode.MarkerStyleNone)
        node.SetLineStyle(slicer.vtkMRMLPlotSeriesNode.LineStyleDash)
    else:
        node.SetMarkerStyle(slicer.vtkMRMLPlotSeriesNode.MarkerStyleCircle)
        node.SetLineStyle(slicer.vtkMRMLPlotSeriesNode.LineStyleSolid)
    place_beside(node, volume)
    return node


def _remove_series(volume: Any, column: str) -> None:
    node = find_output(volume, _series_kind(column), "vtkMRMLPlotSeriesNode")
    if node is not None:
        slicer.mrmlScene.RemoveNode(node)


def _series_kind(column: str) -> str:
    return f"{SERIES_KIND} {column}"
