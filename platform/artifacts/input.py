"""A file on its way into the store, read by range."""

from __future__ import annotations

import io
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from mutoscope.platform.artifacts.full_reads import pread_fully
from mutoscope.platform.errors import InvalidFolder
from mutoscope.platform.tensorfile import NotSafetensors, TensorLayout, read_layout


class Input:
    """The bytes of one file, on disk or in memory.

    Args:
        path: its name within the component, for errors.
    """

    def __init__(self, path: str, source: bytes | Path) -> None:
        self._path = path
        self._file: io.FileIO | None = None
        self._data = memoryview(b"")
        if isinstance(source, Path):
            self._file = io.FileIO(source)
            self.size = os.fstat(self._file.fileno()).st_size
        else:
            self._data, self.size = memoryview(source), len(source)

    def read(self, start: int, length: int) -> bytes:
        """These bytes. Raises InvalidFolder: the file is shorter than it was when it was opened."""
        data = self._pread(start, length)
        if len(data) != length:
            raise InvalidFolder(f"{self._path} was cut while it was read: import the folder again")
        return data

    def layout(self) -> TensorLayout:
        """Where its tensors lie. Raises InvalidFolder: it is damaged or no safetensors file."""
        try:
            return read_layout(self._pread, self.size)
        except NotSafetensors as reason:
            raise InvalidFolder(
                f"{self._path} {reason}: take the file from its source and import the folder again"
            ) from None

    def _pread(self, start: int, length: int) -> bytes:
        if self._file is None:
            return bytes(self._data[start : start + length])
        return pread_fully(self._file.fileno(), start, length)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()
