"""Docstrings as the site shows them: an extension of Griffe (`mkdocs.yml`)."""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^>>> .*(?:\n(?!\s*$).*)*", re.M)


def fenced(text: str) -> str:
    """Return a docstring with its examples as code, up to a blank line each."""
    return EXAMPLE.sub(r"```pycon\n\g<0>\n```", text)


class Docstrings(griffe.Extension):
    """Makes code of examples, and leaves out what belongs to the type of a value."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Look at what was found, of any kind."""
        if obj.is_attribute:  # `True` has the text of `bool`
            obj.docstring = None
        elif obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
