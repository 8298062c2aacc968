"""References to artifacts within the parameters of workflow runs, which are recorded as text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from mutoscope.platform.refs import KINDS

_REFERENCE = re.compile(rf"(?:(?:{'|'.join(KINDS)}):[0-9a-f]{{6,64}}|[0-9a-f]{{64}})")


def references_in(value: Any) -> Iterator[str]:
    """Every text within JSON data that is written like a reference: ``image:3fa9c1``, or a whole digest."""
    match value:
        case str():
            if _REFERENCE.fullmatch(value):
                yield value
        case Mapping():
            for item in value.values():
                yield from references_in(item)
        case list() | tuple():
            for item in value:
                yield from references_in(item)


def mentions(value: Any, digest: str) -> bool:
    """Whether one of the references within JSON data can stand for that digest."""
    return any(digest.startswith(text.rpartition(":")[2]) for text in references_in(value))
