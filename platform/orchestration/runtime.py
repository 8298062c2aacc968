"""The process's handles on the platform: settings, catalog and store, opened once and on first use."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.catalog import Catalog
from mutoscope.platform.custody.tie import tie
from mutoscope.platform.orchestration.stack import read_record
from mutoscope.platform.settings import Settings, get_settings


@dataclass(frozen=True, slots=True)
class Runtime:
    """What orchestration needs of the outside. Catalog and store are thread-safe; share one runtime per
    process.
    """

    settings: Settings
    catalog: Catalog
    store: ArtifactStore

    @classmethod
    def open(cls, settings: Settings) -> Runtime:
        """Raises SchemaMismatch when the catalog is not at this code's revision, OtherStore when its bytes
        are kept in another store than the one configured."""
        catalog, store = Catalog.open(settings.database_url), ArtifactStore.of(settings)
        tie(catalog, store)
        return cls(settings, catalog, store)

    def page_url(self, digest: str) -> str | None:
        """Address of an artifact's page at the gateway; None where no gateway is known."""
        base = self._gateway()
        return f"{base}/artifacts/{digest}/page" if base else None

    def bytes_url(self, digest: str) -> str | None:
        """Address of an artifact's bytes at the gateway; None where no gateway is known."""
        base = self._gateway()
        return f"{base}/artifacts/{digest}" if base else None

    def _gateway(self) -> str:
        if self.settings.web_url:
            return self.settings.web_url.rstrip("/")
        record = read_record(self.settings.home)
        return record.web_url.rstrip("/") if record else ""


_lock = threading.Lock()
_runtime: Runtime | None = None


def get_runtime() -> Runtime:
    """The process's runtime, opened from its settings on first use."""
    global _runtime
    with _lock:
        if _runtime is None:
            _runtime = Runtime.open(get_settings())
        return _runtime


@contextmanager
def use_runtime(runtime: Runtime) -> Iterator[Runtime]:
    """Make `runtime` the process's for the length of the block: for embedding in a program, and for tests."""
    global _runtime
    with _lock:
        previous, _runtime = _runtime, runtime
    try:
        yield runtime
    finally:
        with _lock:
            _runtime = previous
