"""Rows of an answer."""

from __future__ import annotations

import html
import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, overload

_MOST_SHOWN = 40


def cell_text(value: object) -> str:
    """A value as people read it."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: ""}[value]
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {cell_text(item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return " ".join(cell_text(item) for item in value)
    return str(value)


class Table(Sequence[dict[str, Any]]):
    """Rows with equal columns, in the order of the answer.

    Columns have the names and units of the program's JSON (`_s` seconds, `_bytes` bytes). A row is a dict.

    >>> table = Table([{"rank": 0, "step_s": 0.5}, {"rank": 1, "step_s": 0.25}])
    >>> table.columns
    ['rank', 'step_s']
    >>> table[1]["step_s"], table.column("rank")
    (0.25, [0, 1])
    """

    def __init__(self, rows: Iterable[Mapping[str, Any]]) -> None:
        self._rows = [dict(row) for row in rows]

    @property
    def columns(self) -> list[str]:
        """The names of all columns, in the order in which rows have them."""
        return list(dict.fromkeys(key for row in self._rows for key in row))

    def column(self, name: str) -> list[Any]:
        """The values of a column; None where a row has none. KeyError: there is no such column."""
        if name not in self.columns:
            raise KeyError(f"expected one of {', '.join(self.columns)}, found '{name}'")
        return [row.get(name) for row in self._rows]

    def to_pandas(self) -> Any:
        """The table as a pandas.DataFrame. ImportError: pandas is not installed."""
        return importlib.import_module("pandas").DataFrame(self._rows, columns=self.columns)

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> Table: ...
    def __getitem__(self, index: int | slice) -> dict[str, Any] | Table:
        return Table(self._rows[index]) if isinstance(index, slice) else self._rows[index]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._rows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Table) and self._rows == other._rows

    def __hash__(self) -> int:
        return hash(repr(self._rows))

    def __repr__(self) -> str:
        return f"<Table of {len(self)} rows: {', '.join(self.columns)}>"

    def _repr_html_(self) -> str:
        columns = self.columns
        head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell_text(row.get(name)))}</td>" for name in columns) + "</tr>"
            for row in self._rows[:_MOST_SHOWN])
        rest = f"<p>{len(self) - _MOST_SHOWN} more rows</p>" if len(self) > _MOST_SHOWN else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{rest}"
