"""Reads that give all the bytes asked for, from systems that may hand out fewer at a time; fewer only where
the file ends."""

from __future__ import annotations

import os
from typing import BinaryIO


def read_fully(stream: BinaryIO, length: int) -> bytes:
    """The next `length` bytes of a stream."""
    pieces = []
    while length and (piece := stream.read(length)):
        pieces.append(piece)
        length -= len(piece)
    return _joined(pieces)


def pread_fully(descriptor: int, start: int, length: int) -> bytes:
    """`length` bytes of an open file from `start` on; its own position stays."""
    pieces = []
    while length and (piece := os.pread(descriptor, length, start)):
        pieces.append(piece)
        start, length = start + len(piece), length - len(piece)
    return _joined(pieces)


def _joined(pieces: list[bytes]) -> bytes:
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
