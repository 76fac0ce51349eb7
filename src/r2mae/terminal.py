"""The console for formatted output: tables, notes and progress bars."""

from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from r2mae.screen import visible

_WIDTH = 140  # columns of a table in a file or pipe, at least


class Terminal(Console):
    """A console that escapes control characters of texts, and ends with exit code 0 if a pipe is closed (``| head``).

    Rich's console sends control characters to the terminal, and ends with 1.
    """

    @property
    def file(self) -> Any:
        """The output stream, behind a :class:`~r2mae.screen.Screen` and the wrappers of live displays."""
        found = super().file
        while hasattr(found, "rich_proxied_file"):
            found = found.rich_proxied_file
        return found

    @file.setter
    def file(self, new: Any) -> None:
        self._file = new

    def render_str(self, text: str, **options: Any) -> Text:
        """Lay out a text, with control characters escaped first, so that widths are right."""
        return super().render_str(visible(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Split a renderable into segments, with control characters of text escaped."""
        for piece in super().render(renderable, options):
            yield piece if piece.control else piece._replace(text=visible(piece.text))

    def print_trimmed(self, shown: RenderableType) -> None:
        """Print without trailing spaces, such as those of a table's last column."""
        with self.capture() as captured:
            self.print(shown)
        self.file.write("\n".join(line.rstrip() for line in captured.get().splitlines()) + "\n")

    def on_broken_pipe(self) -> None:
        """Discard the rest of the output, and end."""
        try:
            super().on_broken_pipe()
        except SystemExit:
            raise SystemExit(0) from None


def print_table(
    headings: Sequence[str], rows: Iterable[Sequence[str | Text | int | None]], *, numbers: bool = False
) -> None:
    """Print rows below their headings, if there are any.

    Parameters
    ----------
    headings : sequence of str
        Of the columns; empty texts for a table without headings.
    rows : iterable of sequences of str or Text
        Cells; a Text may have a style, and None is an empty cell.
    numbers : bool
        Whether all columns but the first hold numbers, which are aligned to the right.
    """
    table = Table(box=None, pad_edge=False, show_header=any(headings))
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="right" if numbers and place else "left")
    for row in rows:
        table.add_row(*(cell if isinstance(cell, str | Text | None) else str(cell) for cell in row))
    console = Terminal(markup=False, highlight=False)
    if not console.is_terminal:
        console = Terminal(markup=False, highlight=False, width=max(console.width, _WIDTH))
    console.print_trimmed(table)
