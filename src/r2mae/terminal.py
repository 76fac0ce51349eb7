"""The console of all that is laid out: tables, notes and progress bars."""

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from r2mae.screen import visible


class Terminal(Console):
    """A console that shows control characters of texts, and ends the command with 0 when a pipe is closed (``| head``).

    That of rich sends them to the terminal, and ends with 1.
    """

    @property
    def file(self) -> Any:
        """Where it writes: the stream behind a :class:`~r2mae.screen.Screen` and what live displays put before it."""
        found = super().file
        while hasattr(found, "rich_proxied_file"):
            found = found.rich_proxied_file
        return found

    @file.setter
    def file(self, new: Any) -> None:
        self._file = new

    def render_str(self, text: str, **options: Any) -> Text:
        """Lay out a text; so that its escapes are counted, they are made before."""
        return super().render_str(visible(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Turn what is shown into pieces, those of text without control characters."""
        for piece in super().render(renderable, options):
            yield piece if piece.control else piece._replace(text=visible(piece.text))

    def print_trimmed(self, shown: RenderableType) -> None:
        """Print without the blanks at the ends of lines, such as those of a table's last column."""
        with self.capture() as said:
            self.print(shown)
        self.file.write("\n".join(line.rstrip() for line in said.get().splitlines()) + "\n")

    def on_broken_pipe(self) -> None:
        """Discard the rest of the output, and end."""
        try:
            super().on_broken_pipe()
        except SystemExit:
            raise SystemExit(0) from None
