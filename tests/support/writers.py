"""Processes that put objects into a store, and a record of what was acknowledged to them.

They are forked from the server of `forked`: as real as any process, in milliseconds.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import random
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.artifacts.store import Source
from mutoscope.platform.errors import MutoscopeError
from mutoscope.platform.ids import sha256
from tests.support import forked  # noqa: F401  # sets up what the one fork server of a test process imports

PIECE = 1 << 20
PATIENCE_S = 300.0

Verb = Literal["put", "trash", "restore", "quarantine"]
FORMS = ("bytes", "chunks", "stream", "path")
"""How a put is given its bytes."""


@dataclass(frozen=True)
class Payload:
    """Made-up bytes, the same in every process.

    Attributes:
        size: bytes, of which the first MiB at most is random and the rest repeats it.
    """

    seed: int
    size: int
    form: str = "bytes"

    @cached_property
    def content(self) -> bytes:
        return b"".join(self.pieces())

    @cached_property
    def digest(self) -> str:
        return sha256(self.content)

    def pieces(self) -> Iterator[bytes]:
        """The bytes in pieces of 1 MiB."""
        piece = random.Random(self.seed).randbytes(min(self.size, PIECE))
        for start in range(0, self.size, PIECE):
            yield piece[: self.size - start]

    def source(self, folder: Path) -> Source:
        """What is handed to put; a file to read is made below `folder`."""
        match self.form:
            case "bytes":
                return self.content
            case "chunks":
                return self.pieces()
            case "stream":
                return io.BytesIO(self.content)
            case "path":
                path = folder / f"source-{self.seed}"
                path.write_bytes(self.content)
                return path
        raise ValueError(self.form)


def put(store: ArtifactStore, payload: Payload) -> str:
    """Store a payload from within this process; its digest."""
    with tempfile.TemporaryDirectory() if payload.form == "path" else nullcontext("") as folder:
        source = payload.source(Path(folder))
        return store.put(source, kind="blob", media_type="application/octet-stream").digest


def put_all(url: str, payloads: Sequence[Payload], environment: Mapping[str, str]) -> list[str]:
    """Store payloads in a process of a race; their digests."""
    os.environ.update(environment)
    store = ArtifactStore.open(url)
    return [put(store, payload) for payload in payloads]


class Writer:
    """A process that puts payloads one after the other, or moves the objects of their digests.

    Args:
        folder: takes its record and its log.
        verb: the method of the store to call.
        deadline_seconds: of a store on a server.
        environment: on top of this process's own, such as ``MUTOSCOPE_FAULT``.
    """

    def __init__(
        self,
        url: str,
        payloads: Sequence[Payload],
        folder: Path,
        verb: Verb = "put",
        deadline_seconds: float = 60.0,
        **environment: str,
    ) -> None:
        folder.mkdir(exist_ok=True)
        self._record, self._log = folder / "acknowledged", folder / "log"
        self._record.touch()
        context = multiprocessing.get_context("forkserver")
        self._process = context.Process(
            target=_serve,
            args=(url, list(payloads), verb, deadline_seconds, {**os.environ, **environment}, folder),
        )
        self._process.start()

    @property
    def acknowledged(self) -> list[str]:
        """Digests of the calls that have returned."""
        return self._record.read_text().split()

    @property
    def running(self) -> bool:
        return self._process.exitcode is None

    @property
    def log(self) -> str:
        """What it printed: the line of the error that ended it, or a traceback where none was meant."""
        return self._log.read_text()

    def kill(self) -> None:
        self._process.kill()

    def wait(self) -> int:
        """Its exit code: 0 when everything was stored, 2 after an error of ours, -9 when killed."""
        self._process.join(PATIENCE_S)
        assert self._process.exitcode is not None, f"the writer hangs:\n{self.log}"
        return self._process.exitcode

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        self._process.join()


def _serve(
    url: str,
    payloads: Sequence[Payload],
    verb: Verb,
    deadline_seconds: float,
    environment: Mapping[str, str],
    folder: Path,
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    sources = [payload.source(folder) for payload in payloads]
    try:
        store = ArtifactStore.open(url, deadline_seconds=deadline_seconds)
        for payload, source in zip(payloads, sources, strict=True):
            if verb == "put":
                ref = store.put(source, kind="blob", media_type="application/octet-stream")
                assert ref.digest == payload.digest
            else:
                getattr(store, verb)(payload.digest)
            with (folder / "acknowledged").open("a") as record:
                record.write(f"{payload.digest}\n")
    except MutoscopeError as error:
        print(error, flush=True)
        sys.exit(error.exit_code)
