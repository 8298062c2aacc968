"""The reference to an artifact, as the store hands it out; defined below store and catalog in
`platform.refs`."""

from __future__ import annotations

from mutoscope.platform.refs import KINDS, ArtifactRef, parse_reference

__all__ = ["KINDS", "ArtifactRef", "parse_reference"]
