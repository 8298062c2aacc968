"""A backend that notes what is asked of it."""

from __future__ import annotations

from typing import Any

from mutoscope.platform.artifacts import ArtifactStore


class CountingBackend:
    """Passes every call on, and keeps (method, object); the object is empty where the call names none."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend
        self.calls: list[tuple[str, str]] = []

    def __getattr__(self, method: str) -> Any:
        value = getattr(self._backend, method)
        if not callable(value):
            return value

        def noted(*arguments: Any, **named: Any) -> Any:
            name = arguments[0] if arguments and isinstance(arguments[0], str) else ""
            self.calls.append((method, name.rpartition("/")[2]))
            return value(*arguments, **named)

        return noted

    def names(self, *methods: str) -> list[str]:
        """The objects that those methods were called for, in order."""
        return [name for method, name in self.calls if method in methods]


def counting(store: ArtifactStore) -> tuple[ArtifactStore, CountingBackend]:
    """The same store, and what notes its calls."""
    backend = CountingBackend(store._backend)
    return ArtifactStore(backend, store.root_url), backend
