"""A backend at an address, and how its refusals are put into words."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from mutoscope.platform.artifacts.backend import Backend
from mutoscope.platform.artifacts.urls import scrubbed
from mutoscope.platform.errors import StoreUnavailable, StoreUnwritable


class Medium:
    """Where a store keeps its bytes.

    Attributes:
        root_url: its address as it may be shown: without secrets.
    """

    def __init__(self, backend: Backend, url: str) -> None:
        self._backend = backend
        self.root_url = scrubbed(url)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        """As `_writing`, for a medium that refuses to be read."""
        try:
            yield
        except OSError as error:
            raise StoreUnavailable(
                f"the artifact store {self.root_url} cannot be read ({_reason(error)}): fix its permissions "
                "or its disk, or set MUTOSCOPE_STORE_URL to another place"
            ) from error

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Turns a refusal of the medium into one line with a remedy. Errors of the *source* do not pass
        through here."""
        try:
            yield
        except (OSError, StoreUnavailable) as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError | StoreUnavailable) -> StoreUnwritable:
        if isinstance(error, StoreUnwritable):
            return error
        if isinstance(error, StoreUnavailable):  # a write begins with a question
            return StoreUnwritable(str(error))
        return StoreUnwritable(
            f"the artifact store {self.root_url} cannot be written ({_reason(error)}): "
            "free space or fix its permissions, or set MUTOSCOPE_STORE_URL to another place"
        )


def _reason(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__
