"""Output of commands: control characters from foreign names and files are escaped.

:class:`Screen` is for printed text, :class:`r2mae.terminal.Terminal` for text that rich lays out and colours.
"""

from collections.abc import Iterable
from io import TextIOWrapper
from typing import Any

_ESCAPES = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n"}


def visible(text: str) -> str:
    r"""Return a text with control characters, except tabs and line ends, replaced by escapes such as ``\x1b``."""
    return text.translate(_ESCAPES)


class Screen:
    """Standard output or error of a command, without control characters.

    Parameters
    ----------
    stream : text stream
        The wrapped stream. Rich recognises the attribute's name, and writes its colours to the stream.
    """

    def __init__(self, stream: Any) -> None:
        self.rich_proxied_file = stream
        if isinstance(stream, TextIOWrapper):  # file names may contain bytes that are not valid UTF-8
            stream.reconfigure(errors="backslashreplace")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)

    def write(self, text: str) -> Any:
        """Write a text. Bars of other libraries return to the start of the line: here each state is a line."""
        return self.rich_proxied_file.write(visible(text.replace("\r\n", "\n").replace("\r", "\n")))

    def writelines(self, lines: Iterable[str]) -> None:
        """Write texts."""
        for line in lines:
            self.write(line)
