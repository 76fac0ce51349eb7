"""What commands show: control characters of foreign names and files are shown as escapes, and never sent.

:class:`Screen` is for what is printed, :class:`r2mae.terminal.Terminal` for what rich lays out and colours itself.
"""

from collections.abc import Iterable
from typing import Any

_ESCAPES = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n"}


def visible(text: str) -> str:
    r"""Return a text in which control characters other than tabs and line ends are escapes, such as ``\x1b``."""
    return text.translate(_ESCAPES)


class Screen:
    """Standard output or error of a command, to which no control character is sent.

    Parameters
    ----------
    stream : text stream
        The stream itself. rich, which knows the name of the attribute, writes its own colours there.
    """

    def __init__(self, stream: Any) -> None:
        self.rich_proxied_file = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)

    def write(self, text: str) -> Any:
        """Write a text."""
        return self.rich_proxied_file.write(visible(text))

    def writelines(self, lines: Iterable[str]) -> None:
        """Write texts."""
        self.rich_proxied_file.writelines(map(visible, lines))
