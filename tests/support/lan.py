"""Several machines in one: each a network namespace on a common bridge, with a host name and a view of the
disk of its own.

What runs on a host reaches the other hosts, and this process, over the network and in no other way: addresses
of loopback are its own, and folders of the others are empty to it. Needs root and a kernel with namespaces
and bridges; `available` tells.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_NETWORK = "10.213.7"
HERE = f"{_NETWORK}.1"
"""This process's address on the bridge: servers that the hosts share listen there."""

_PREFIX, _BRIDGE = "mutoscope-host-", "mutoscope-br"
_LOCK = Path(tempfile.gettempdir()) / "mutoscope-lan.lock"


@dataclass(frozen=True)
class Machine:
    """One host.

    Attributes:
        folder: what it has on disk.
        hidden: folders that are empty to it.
        apart: False for a host that is one by its folder alone.
    """

    name: str
    address: str
    folder: Path
    hidden: tuple[Path, ...]
    apart: bool = True

    def command(self, words: Sequence[str]) -> list[str]:
        """What runs `words` on this host."""
        if not self.apart:
            return list(words)
        hide = "".join(f"mount -t tmpfs none '{folder}' && " for folder in self.hidden)
        script = f'{hide}hostname {self.name} && exec "$@"'
        apart = ["unshare", "--mount", "--uts", "sh", "-c", script, "sh"]
        return ["ip", "netns", "exec", self.name, *apart, *words]


@contextmanager
def lan(folder: Path, count: int) -> Iterator[tuple[Machine, ...]]:
    """That many hosts, with their folders below `folder`; gone, with all that runs on them, afterwards.

    One network at a time: another caller waits. What a killed one left is cleared away first.
    """
    names = [f"{_PREFIX}{number}" for number in range(1, count + 1)]
    folders = [folder / name for name in names]
    with _LOCK.open("a") as lock, ExitStack() as exits:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _clear()
        exits.callback(_clear)
        _ip("link", "add", _BRIDGE, "type", "bridge")
        _ip("address", "add", f"{HERE}/24", "dev", _BRIDGE)
        _ip("link", "set", _BRIDGE, "up")
        made = []
        for number, (name, own) in enumerate(zip(names, folders, strict=True), start=1):
            own.mkdir(parents=True)
            others = tuple(other for other in folders if other != own)
            machine = Machine(name, f"{_NETWORK}.{10 + number}", own, others)
            _ip("netns", "add", name)
            _join(machine, f"mutoscope-v{number}")
            made.append(machine)
        yield tuple(made)


def _clear() -> None:
    """Remove every host and the bridge, whoever made them."""
    for line in _ip("netns", "list").splitlines():
        name = line.split()[0]
        if name.startswith(_PREFIX):
            for pid in _ip("netns", "pids", name).split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            _ip("netns", "delete", name)
    if any(name == _BRIDGE for _, name in socket.if_nameindex()):
        _ip("link", "delete", _BRIDGE)


def _join(machine: Machine, cable: str) -> None:
    inside = ("-netns", machine.name)
    _ip("link", "add", cable, "type", "veth", "peer", "name", "lan", "netns", machine.name)
    _ip("link", "set", cable, "master", _BRIDGE, "up")
    _ip(*inside, "address", "add", f"{machine.address}/24", "dev", "lan")
    for device in ("lan", "lo"):
        _ip(*inside, "link", "set", device, "up")


@cache
def available() -> bool:
    """Whether this machine can be several."""
    try:
        with tempfile.TemporaryDirectory() as folder, lan(Path(folder), 1) as (machine,):
            subprocess.run(machine.command(["true"]), check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


def _ip(*words: str) -> str:
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout
