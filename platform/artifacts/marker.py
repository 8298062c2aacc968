"""The store's own name: one small document at its root, written once, which moves with the bytes.

An address does not tell stores apart: two hosts call different folders ``file:///srv/store``, and one bucket
has several endpoints. Whoever copies a store copies its marker along, and has the same store.
"""

from __future__ import annotations

import contextlib
import json

from mutoscope.platform.artifacts import layout
from mutoscope.platform.artifacts.backend import Facts
from mutoscope.platform.artifacts.medium import Medium
from mutoscope.platform.errors import ArtifactCorrupt

_FORMAT = "mutoscope.store/1"


class Marked(Medium):
    """A store that can be told from others."""

    def marker(self) -> str | None:
        """The id in the marker; None where there is none yet.

        Raises:
            ArtifactCorrupt: the document at its place is none of ours.
        """
        with self._reading():
            try:
                data = self._backend.read(layout.MARKER_NAME)
            except FileNotFoundError:
                return None
        try:
            document = json.loads(data)
            if document["format"] == _FORMAT:
                return str(document["id"])
        except (ValueError, KeyError, TypeError):
            pass
        raise ArtifactCorrupt(
            f"{layout.MARKER_NAME} in the store {self.root_url} cannot be read: restore it from a backup, or "
            "remove it if everything else of the store is in place"
        )

    def mark(self, id_: str) -> str:
        """Name the store unless it has a name; returns the one it has now. Raises StoreUnwritable."""
        document = json.dumps({"format": _FORMAT, "id": id_}, indent=1).encode()
        # Somebody else may be faster: then theirs counts.
        with self._writing(), contextlib.suppress(FileExistsError):
            self._backend.write(layout.MARKER_NAME, document, Facts("application/json"), replace=False)
        # A medium that cannot tell has kept the last writer's; so what is there now is asked for.
        return self.marker() or id_
