"""A stored trajectory, of which only what is asked for is read."""

from __future__ import annotations

from mutoscope.platform.artifacts.codecs.trajectory import TrajectoryHeader, read_header
from mutoscope.platform.artifacts.store import ArtifactStore
from mutoscope.platform.trajectory import Floats, TrajectoryFacts

_FIRST_BYTES = 64 << 10
"""Read at once at the start: the whole header of all but the largest groups, in one request."""


class OpenTrajectory:
    """The facts at once; latents and log-probabilities by range, each verified."""

    def __init__(self, store: ArtifactStore, digest: str) -> None:
        self._store, self._digest = store, digest
        self._header: TrajectoryHeader = self._read_header()

    @property
    def facts(self) -> TrajectoryFacts:
        """Seeds, schedule, law, window, weights."""
        return self._header.facts

    def levels(self, sample: int) -> tuple[int, ...]:
        """Levels at which a sample's latent was captured, ascending."""
        return self._header.levels(sample)

    def latent(self, sample: int, level: int) -> Floats:
        """The latent at one level of the schedule, float32, read-only.

        Raises:
            InvalidParameter: no such sample, or nothing was captured at that level.
            ArtifactMissing, ArtifactCorrupt: the bytes are gone or damaged.
        """
        return self._header.latent(self._read, sample, level)

    def log_probs(self, sample: int) -> Floats:
        """float32 (W,), one for each step of the window. Raises as `latent`."""
        return self._header.log_probs(self._read, sample)

    def _read(self, start: int, length: int) -> bytes:
        return self._store.read_range(self._digest, start, length)

    def _read_header(self) -> TrajectoryHeader:
        first = self._read(0, _FIRST_BYTES)

        def read(start: int, length: int) -> bytes:
            known = first[start : start + length]
            return known if len(known) == length else self._read(start, length)

        return read_header(read, self._store.size(self._digest))


def open_trajectory(store: ArtifactStore, digest: str) -> OpenTrajectory:
    """Open a group by the digest of its artifact.

    Raises:
        ArtifactMissing: it is not in the store.
        ArtifactCorrupt: it is no trajectory, or its header is damaged.
    """
    return OpenTrajectory(store, digest)
