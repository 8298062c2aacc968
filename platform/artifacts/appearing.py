"""Files on the local disk that appear complete or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from mutoscope.platform.ids import new_id


@contextlib.contextmanager
def appearing(path: Path) -> Iterator[Path]:
    """Where to write what is at `path` once the block is left; nothing stays of a block that fails."""
    temporary = path.with_name(f".{path.name}.{new_id()}")
    try:
        yield temporary
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
