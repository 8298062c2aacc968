"""What a worker measured of a card on this machine, kept on the disk for the next start.

A record is a JSON file under HOME/cache, named by the digest of everything that decides what is in it: the
card's code, its recipe, the architecture of its components, the numeric contract of the device and how large
a shared call may get. Weights are not among it: a new version of them gives the same. The file names those
parts again and a digest of its content, so one that was damaged, or that lies under another's name, is none.

Workers that start together on one machine would measure the same side by side, on the same cores: the first
to come holds the name's lock, the others wait for what it finds.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from mutoscope.platform import ids
from mutoscope.platform.artifacts.appearing import appearing
from mutoscope.platform.engine import numerics
from mutoscope.platform.engine.findings import structure_digest
from mutoscope.platform.engine.instance import Instance

KEY_DOMAIN = "mutoscope.measurement/1"

PATIENCE_S = 120.0
"""Seconds that a worker waits for another that measures the same. One that stands still must not hold up the
rest."""

_ASK_EVERY_S = 0.05

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Conditions:
    """What holds for every card of a worker.

    Attributes:
        contract: numeric contract of the device.
        mode: what batching may do to bits. most: rows of the largest shared call.
    """

    contract: Mapping[str, Any]
    mode: str
    most: int

    def parts(self, instance: Instance) -> dict[str, Any]:
        """Everything that decides what is measured of an instance's card."""
        return {
            "card": instance.card.id,
            "card_digest": numerics.card_digest(instance.card),
            "recipe": instance.recipe.model_dump(mode="json"),
            "components": {name: structure_digest(part) for name, part in instance.components.items()},
            # What is no module has no architecture: it is what its bytes are (a tokenizer, a schedule).
            "values": {
                name: instance.weights.get(name)
                for name, part in instance.components.items()
                if not isinstance(part, nn.Module)
            },
            "contract": dict(self.contract),
            "mode": self.mode,
            "most": self.most,
        }


class Measurements:
    """The files below a folder. Several workers, and machines of several kinds, may share it.

    Args:
        root: None: nothing is kept and nothing found.
    """

    def __init__(self, root: Path | None) -> None:
        self._root = root

    def find(self, parts: Mapping[str, Any]) -> dict[str, Any] | None:
        """What was kept under these parts; None if nothing was, or nothing whole."""
        if self._root is None:
            return None
        path = self._path(parts)
        try:
            stored = json.loads(path.read_bytes())
            content: dict[str, Any] = stored["content"]
            whole = stored["sha256"] == _checksum(content) and stored["parts"] == _plain(parts)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError):
            whole = False
        if not whole:
            log.warning("not believed, it is damaged or another's: %s", path)
            return None
        return content

    def keep(self, parts: Mapping[str, Any], content: Mapping[str, Any]) -> None:
        """Keep something in place of what was there. A disk that refuses costs the next start some time, and
        this one nothing."""
        if self._root is None:
            return
        stored = {"parts": _plain(parts), "content": _plain(content), "sha256": _checksum(_plain(content))}
        path = self._path(parts)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with appearing(path) as temporary:
                temporary.write_text(json.dumps(stored))
        except OSError as error:
            log.warning("not kept for the next start: %s: %s", path, error)

    @contextmanager
    def alone(self, parts: Mapping[str, Any]) -> Iterator[None]:
        """Inside, no other worker is in such a block for the same parts; unless it takes too long."""
        if self._root is None:
            yield
            return
        descriptor = self._open_lock(parts)
        try:
            if descriptor is not None:
                _lock(descriptor, PATIENCE_S)
            yield
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def _open_lock(self, parts: Mapping[str, Any]) -> int | None:
        path = self._path(parts).with_suffix(".lock")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError:
            return None

    def _path(self, parts: Mapping[str, Any]) -> Path:
        assert self._root is not None
        return self._root / f"{ids.digest(KEY_DOMAIN, _plain(parts))}.json"


def _plain(value: Mapping[str, Any]) -> dict[str, Any]:
    """As JSON gives it back."""
    plain: dict[str, Any] = json.loads(json.dumps(value))
    return plain


def _checksum(content: Mapping[str, Any]) -> str:
    return ids.sha256(json.dumps(content, sort_keys=True).encode())


def _lock(descriptor: int, seconds: float) -> None:
    """Take the lock, which the kernel frees when its holder ends; go on without it after so many seconds."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                log.warning("another worker measures the same for more than %.0f s: not waited for", seconds)
                return
            time.sleep(_ASK_EVERY_S)
        else:
            return
