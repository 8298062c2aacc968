"""`key=value` arguments of `mutoscope run`.

Only the shape is checked here. A value that its parameter cannot read is handed on as text, so that the
workflow itself refuses it: the line a person sees and the line in the failed flow run are then the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from mutoscope.platform.errors import InvalidParameter


def split_assignments(arguments: Iterable[str]) -> dict[str, str]:
    """`["prompt=a red circle", "seed=7"]` as a mapping. Raises InvalidParameter for any other shape."""
    values: dict[str, str] = {}
    for argument in arguments:
        key, equals, value = argument.partition("=")
        key = key.strip().replace("-", "_")
        if not equals or not key.isidentifier():
            raise InvalidParameter(
                "argument", argument, 'write key=value, such as seed=7 or prompt="a red circle"'
            )
        if key in values:
            raise InvalidParameter(key, value, f"{key} was already given as {values[key]!r}; give it once")
        values[key] = value
    return values


def as_file(name: str, text: str) -> Path | None:
    """The file that a text names where an artifact is wanted, or None for a reference (`image:3fa9`).

    A text with a slash or a dot can only be a file.

    Raises:
        InvalidParameter: it can only be a file, and there is none.
    """
    path = Path(text).expanduser()
    if path.is_file():
        return path
    if "/" in text or "." in text:
        raise InvalidParameter(
            name, text, "there is no such file; give a file or a reference such as image:3fa9"
        )
    return None
