"""AuditResult → MRML: the one room that talks to Slicer's scene.

Imports only ``slicer``, ``vtk``, NumPy and the library's contracts, so that ``slicer-core`` from
PyPI is enough to run and test it without the application.

Array axes are those of ``slicer.util.arrayFromVolume``: axis 0 is K, 1 is J, 2 is I. A slice index
is always an index along such an axis; millimetres serve for display only (issue 4).
"""
