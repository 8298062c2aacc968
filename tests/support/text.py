"""Comparing text that holds ids: whole, with the ids starred out."""

from __future__ import annotations

import re
import textwrap

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_DIGEST = re.compile(r"\b[0-9a-f]{12,64}\b")


def starred(text: str) -> str:
    """`text` with run ids and digests replaced by ``***``."""
    return _DIGEST.sub("***", _UUID.sub("***", text))


def assert_text(actual: str, expected: str) -> None:
    """`actual`, ids starred out, is `expected`, common indentation and outer blank lines aside."""
    assert starred(actual).strip("\n") == textwrap.dedent(expected).strip("\n")
