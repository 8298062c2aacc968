"""Trajectories: a group in one safetensors file that any reader opens, and of which a step can be read alone.

    sample.0003/latent.0007    float32, the latent at level 7 of the schedule, in the model's own layout
    sample.0003/log_probs      float32 (W,), one for each step of the window

The header's metadata holds, under ``mutoscope.trajectory``, the group's facts and the SHA-256 of every
tensor as JSON; and under ``mutoscope.check`` the SHA-256 of the whole header without that entry. A slice of
an object is not covered by the object's digest: so the header vouches for itself, and for each tensor.

Equal groups are equal bytes: names sorted, JSON canonical, nothing about when or where.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from operator import itemgetter
from typing import Any

import numpy as np

from mutoscope.platform.artifacts.codecs.encoded import Encoded
from mutoscope.platform.errors import ArtifactCorrupt, InvalidParameter
from mutoscope.platform.ids import sha256
from mutoscope.platform.tensorfile import (
    NotSafetensors,
    TensorLayout,
    TensorSpan,
    build_header,
    read_layout,
)
from mutoscope.platform.trajectory import Floats, TrajectoryFacts, TrajectoryGroup, TrajectorySample

MEDIA_TYPE = "application/vnd.mutoscope.trajectory"
FORMAT = "mutoscope.trajectory/1"

_FACTS, _CHECK = "mutoscope.trajectory", "mutoscope.check"


def encode(value: Any, meta: dict[str, Any]) -> Encoded:
    """The group as safetensors. Meta gains ``samples``, ``levels`` (latents of a sample) and ``shape`` (of a
    latent)."""
    if not isinstance(value, TrajectoryGroup):
        raise InvalidParameter("trajectory", type(value).__name__, "use a TrajectoryGroup")
    arrays = dict(sorted(_named(value), key=itemgetter(0)))
    tensors = {name: array.astype("<f4", copy=False).tobytes() for name, array in arrays.items()}
    listed = [(name, "F32", arrays[name].shape, len(data)) for name, data in tensors.items()]
    digests = {name: sha256(data) for name, data in tensors.items()}
    metadata = {_FACTS: _canonical({"format": FORMAT, **asdict(value.facts), "sha256": digests})}
    metadata[_CHECK] = sha256(build_header(listed, metadata))
    data = b"".join([build_header(listed, metadata), *tensors.values()])
    first = value.samples[0].latents
    shown = {
        "samples": len(value.samples),
        "levels": len(first),
        "shape": list(next(iter(first.values())).shape),
    }
    return Encoded(data, MEDIA_TYPE, {**meta, **shown})


def decode(data: bytes) -> TrajectoryGroup:
    """The group. Raises InvalidParameter: the bytes are none."""
    try:
        header = read_header(lambda start, length: data[start : start + length], len(data))
    except ArtifactCorrupt as error:
        raise InvalidParameter("trajectory", f"{len(data)} bytes", f"use a whole file ({error})") from None
    return header.group(lambda start, length: data[start : start + length])


@dataclass(frozen=True, slots=True)
class TrajectoryHeader:
    """What stands before the numbers: the facts, and where each tensor lies and what it hashes to."""

    facts: TrajectoryFacts
    spans: Mapping[str, TensorSpan]
    digests: Mapping[str, str]

    def levels(self, sample: int) -> tuple[int, ...]:
        """Levels at which a sample's latent was captured, ascending."""
        prefix = _latent_name(sample, 0)[:-4]
        return tuple(sorted(int(name.removeprefix(prefix)) for name in self.spans if name.startswith(prefix)))

    def latent(self, read: Callable[[int, int], bytes], sample: int, level: int) -> Floats:
        """One latent, verified. Raises InvalidParameter or ArtifactCorrupt."""
        return self._tensor(read, _latent_name(sample, level))

    def log_probs(self, read: Callable[[int, int], bytes], sample: int) -> Floats:
        """A sample's log-probabilities, verified. Raises InvalidParameter or ArtifactCorrupt."""
        return self._tensor(read, _log_probs_name(sample))

    def group(self, read: Callable[[int, int], bytes]) -> TrajectoryGroup:
        """All of it."""
        samples = [
            TrajectorySample(
                {level: self.latent(read, sample, level) for level in self.levels(sample)},
                self.log_probs(read, sample),
            )
            for sample in range(len(self.facts.seeds))
        ]
        return TrajectoryGroup(self.facts, tuple(samples))

    def _tensor(self, read: Callable[[int, int], bytes], name: str) -> Floats:
        span = self.spans.get(name)
        if span is None:
            raise InvalidParameter(
                "trajectory", name, f"the group has {len(self.facts.seeds)} samples; it was not captured"
            )
        data = read(span.start, span.size)
        if sha256(data) != self.digests.get(name):
            raise ArtifactCorrupt(f"trajectory: {name} is damaged in the store: replay the run that made it")
        return np.ndarray(span.shape, "<f4", data)


def read_header(read: Callable[[int, int], bytes], size: int) -> TrajectoryHeader:
    """The header of a trajectory of `size` bytes, checked against itself.

    Args:
        read: gives the bytes from a start, so many.

    Raises:
        ArtifactCorrupt: damaged, or no trajectory.
    """
    try:
        layout = read_layout(read, size)
        facts = json.loads(layout.metadata[_FACTS])
        if facts.pop("format") != FORMAT:
            raise ValueError("another format")
        if sha256(_without_check(layout)) != layout.metadata.get(_CHECK):
            raise ValueError("its header is not what was written")
        digests = facts.pop("sha256")
        return TrajectoryHeader(TrajectoryFacts(**facts), {span.name: span for span in layout.spans}, digests)
    except (NotSafetensors, KeyError, TypeError, ValueError, InvalidParameter) as error:
        raise ArtifactCorrupt(
            f"trajectory is damaged or none ({error}): replay the run that made it"
        ) from None


def _named(group: TrajectoryGroup) -> list[tuple[str, Floats]]:
    return [
        pair
        for index, sample in enumerate(group.samples)
        for pair in (
            *((_latent_name(index, level), array) for level, array in sample.latents.items()),
            (_log_probs_name(index), sample.log_probs_W),
        )
    ]


def _latent_name(sample: int, level: int) -> str:
    return f"sample.{sample:04}/latent.{level:04}"


def _log_probs_name(sample: int) -> str:
    return f"sample.{sample:04}/log_probs"


def _canonical(facts: Mapping[str, Any]) -> str:
    try:
        return json.dumps(facts, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except TypeError as error:
        raise InvalidParameter("trajectory", "facts", f"use plain numbers and text ({error})") from None


def _without_check(layout: TensorLayout) -> bytes:
    metadata = {key: text for key, text in layout.metadata.items() if key != _CHECK}
    return build_header(((s.name, s.dtype, s.shape, s.size) for s in layout.spans), metadata)
