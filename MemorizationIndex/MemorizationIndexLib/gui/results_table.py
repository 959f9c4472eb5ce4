"""The table of slices: colored by ONI, sortable, filtered, walked through with the keyboard."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import qt

from ..colors import oni_color, text_color
from ..results import SliceResult
from .rows import FLAGGED, ONI, ROW_TINT, Subjects, columns

_ROLE = int(getattr(qt.Qt.UserRole, "value", qt.Qt.UserRole))
KEY_ROLE, FLAG_ROLE, INDEX_ROLE = _ROLE, _ROLE + 1, _ROLE + 2


class ResultsTable:
    """Fills a QTableView with slice results.

    qMRMLTableView cannot color cells, hence a view and model of the panel's own; the numbers are
    in a table node as well.

    Args:
        view: The QTableView.
        on_row: Called with the row the user went to.
    """

    def __init__(self, view: Any, on_row: Callable[[SliceResult], None]) -> None:
        self.view = view
        self._on_row = on_row
        self._rows: tuple[SliceResult, ...] = ()
        self._filling = False
        self.model = qt.QStandardItemModel(view)
        self.proxy = qt.QSortFilterProxyModel(view)
        self.proxy.setSourceModel(self.model)
        self.proxy.sortRole = KEY_ROLE
        self.proxy.filterRole = FLAG_ROLE
        self.proxy.filterKeyColumn = 0
        view.setModel(self.proxy)
        view.sortingEnabled = True
        view.sortByColumn(0, qt.Qt.AscendingOrder)
        view.selectionBehavior = qt.QAbstractItemView.SelectRows
        view.selectionMode = qt.QAbstractItemView.SingleSelection
        view.editTriggers = qt.QAbstractItemView.NoEditTriggers
        view.tabKeyNavigation = False
        view.wordWrap = False
        view.horizontalScrollMode = qt.QAbstractItemView.ScrollPerPixel
        view.verticalHeader().hide()
        view.horizontalHeader().stretchLastSection = True
        # Kept: the view makes it anew with each model, and a Python slot must not outlive it.
        self._selection = view.selectionModel()
        self._selection.currentRowChanged.connect(self._on_current)

    def close(self) -> None:
        """Let go of the view."""
        self._selection.currentRowChanged.disconnect(self._on_current)

    @property
    def rows(self) -> tuple[SliceResult, ...]:
        """All rows, in the order of the result."""
        return self._rows

    def fill(self, rows: Sequence[SliceResult], subjects: Subjects) -> None:
        """Show rows; the sorting and the filter stay."""
        before = self.current()
        self._filling = True
        # Sorted once at the end, not after each cell.
        self.proxy.dynamicSortFilter = False
        try:
            self._rows = tuple(rows)
            shown = columns(subjects, rows)
            self.model.clear()
            self.model.setColumnCount(len(shown))
            self.model.setRowCount(len(rows))
            for column, one in enumerate(shown):
                header = qt.QStandardItem(one.title)
                header.setToolTip(one.tip)
                self.model.setHorizontalHeaderItem(column, header)
            for index, row in enumerate(rows):
                tint = qt.QColor(*oni_color(row.oni))
                tint.setAlphaF(ROW_TINT)
                for column, one in enumerate(shown):
                    item = qt.QStandardItem(one.text(row))
                    item.setEditable(False)
                    item.setData(one.key(row), KEY_ROLE)
                    item.setData("1" if row.verdict in FLAGGED else "0", FLAG_ROLE)
                    item.setData(index, INDEX_ROLE)
                    if row.oni is not None and one.title == ONI:
                        color = oni_color(row.oni)
                        item.setBackground(qt.QBrush(qt.QColor(*color)))
                        item.setForeground(qt.QBrush(qt.QColor(*text_color(color))))
                    elif row.oni is not None:
                        item.setBackground(qt.QBrush(tint))
                    item.setToolTip(one.tip_of(row))
                    self.model.setItem(index, column, item)
            # A change of palette sets it back.
            height = self.view.fontMetrics().height() + 8
            self.view.verticalHeader().defaultSectionSize = height
            self.view.resizeColumnsToContents()
            self.proxy.dynamicSortFilter = True
            if before is not None:
                self._return_to(before)
        finally:
            self.proxy.dynamicSortFilter = True
            self._filling = False

    def _return_to(self, before: SliceResult) -> None:
        for place, row in enumerate(self.visible_rows()):
            if (row.volume, row.slice) == (before.volume, before.slice):
                self.view.setCurrentIndex(self.proxy.index(place, 0))

    def show_flagged_only(self, flagged_only: bool) -> None:
        """List only copies and suspicious slices, or all."""
        self.proxy.setFilterFixedString("1" if flagged_only else "")

    def visible_rows(self) -> list[SliceResult]:
        """Return the rows as they are listed now, top to bottom."""
        return [
            self._rows[int(self.proxy.index(place, 0).data(INDEX_ROLE))]
            for place in range(self.proxy.rowCount())
        ]

    def sort(self, column: int, *, descending: bool = False) -> None:
        """Sort by a column, as a click on its header does."""
        order = qt.Qt.DescendingOrder if descending else qt.Qt.AscendingOrder
        self.view.sortByColumn(column, order)

    def go_to(self, place: int) -> None:
        """Make a listed row the current one."""
        self.view.setCurrentIndex(self.proxy.index(place, 0))

    def current(self) -> SliceResult | None:
        """Return the row the user is at, or None."""
        index = self.view.currentIndex()
        if not index.isValid():
            return None
        return self._rows[int(index.data(INDEX_ROLE))]

    def _on_current(self, current: Any, _previous: Any = None) -> None:
        if self._filling or not current.isValid():
            return
        self._on_row(self._rows[int(current.data(INDEX_ROLE))])
