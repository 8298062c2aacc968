"""Documents to browse, kept beside the objects: unlike them they may be written again at any time."""

from __future__ import annotations

from collections.abc import Iterator

from mutoscope.platform.artifacts import layout
from mutoscope.platform.artifacts.backend import Facts
from mutoscope.platform.artifacts.medium import Medium


class Pages(Medium):
    """The pages of a store. Their paths begin with ``runs/``.

    Attributes:
        public_url: where browsers find the root of the store, if not at the store's own address.
    """

    public_url = ""

    def publish(self, path: str, data: bytes, media_type: str) -> None:
        """Make `path` hold `data`, at once. Raises InvalidParameter for a path outside ``runs/``."""
        name = layout.page_name(path)
        with self._writing():
            self._backend.write(name, data, Facts(media_type), replace=True)

    def published(self, path: str) -> bytes | None:
        """The page's bytes, None where there is none."""
        name = layout.page_name(path)
        with self._reading():
            try:
                return self._backend.read(name)
            except FileNotFoundError:
                return None

    def published_at(self, path: str) -> float | None:
        """When the page was written, in seconds since the epoch by the store's clock; None: there is none."""
        entry = self._backend.entry(layout.page_name(path))
        return None if entry is None else entry.modified

    def unpublish(self, path: str) -> bool:
        """Remove a page; False if there was none."""
        with self._writing():
            return self._backend.remove(layout.page_name(path))

    def pages(self, prefix: str = layout.RUNS) -> Iterator[str]:
        """Paths of all pages in the folder `prefix` and below."""
        folder = prefix.rstrip("/")
        if folder not in (layout.RUNS, layout.USERS):
            layout.page_name(folder)
        return (entry.name for entry in self._backend.entries(folder))

    def page_url(self, path: str) -> str:
        """Where the page lives, for people and other tools."""
        return self._backend.url(layout.page_name(path))

    def web_url(self, path: str) -> str:
        """The page's address for a browser, which opens it if it may read the store."""
        if self.public_url:
            return f"{self.public_url}/{path}"
        signed = self._backend.presigned_url(layout.page_name(path), 60)
        return signed.partition("?")[0] if signed else self.page_url(path)
