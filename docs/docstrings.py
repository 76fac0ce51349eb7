"""Docstrings refer to other objects in reStructuredText; the site shows these names as code."""

import re
from typing import Any

from griffe import Extension, Object


class PlainRoles(Extension):
    """Turn ``:class:`~a.b.C``` into ```C``` in every docstring."""

    def on_instance(self, *, obj: Object, **context: Any) -> None:
        """Rewrite one object's docstring."""
        if obj.docstring is not None:
            text = re.sub(r":(?:\w+:)?\w+:`~[\w.]*?(\w+)`", r"`\1`", obj.docstring.value)
            obj.docstring.value = re.sub(r":(?:\w+:)?\w+:`([^`]+)`", r"`\1`", text)
