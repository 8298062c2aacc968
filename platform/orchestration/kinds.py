"""Artifact kinds as annotations: what a workflow takes and what it returns.

    async def extend(video: Video, prompt: Prompt) -> Video: ...

For a type checker every one of them is an `ArtifactRef`. As a parameter it takes a reference, its text such
as ``video:3fa9`` or its JSON; whoever runs the workflow looks texts up, so that the function gets a reference
of that kind.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import PydanticCustomError, core_schema

from mutoscope.platform.errors import InvalidParameter, MutoscopeError
from mutoscope.platform.refs import ArtifactRef

if TYPE_CHECKING:
    from mutoscope.platform.catalog import Catalog


@dataclass(frozen=True, slots=True)
class Kind:
    """Marks an `ArtifactRef` as one of a kind."""

    name: str

    @property
    def spelling(self) -> str:
        """What a reference to one looks like, as a regular expression."""
        return rf"^({self.name}:)?[0-9a-fA-F]{{4,64}}$"

    def read(self, value: Any) -> ArtifactRef | str:
        """A reference of the kind, or a text that may name one.

        Raises:
            PydanticCustomError: neither.
        """
        if isinstance(value, str) and re.fullmatch(self.spelling, value.strip()):
            return value.strip()
        if isinstance(value, Mapping):
            try:
                value = ArtifactRef.from_dict(value)
            except MutoscopeError:
                raise self._refusal() from None
        if isinstance(value, ArtifactRef) and value.kind == self.name:
            return value
        raise self._refusal()

    def _refusal(self) -> PydanticCustomError:
        remedy = "use a reference such as {kind}:3fa9c1d2e4f5"
        return PydanticCustomError("artifact_kind", remedy, {"kind": self.name})

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> Any:
        return core_schema.no_info_plain_validator_function(
            self.read, serialization=core_schema.plain_serializer_function_ser_schema(full_reference)
        )

    def __get_pydantic_json_schema__(self, schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"type": "string", "pattern": self.spelling, "artifact": self.name}


Image = Annotated[ArtifactRef, Kind("image")]
Video = Annotated[ArtifactRef, Kind("video")]
Audio = Annotated[ArtifactRef, Kind("audio")]
Latent = Annotated[ArtifactRef, Kind("latent")]
Embedding = Annotated[ArtifactRef, Kind("embedding")]
Trajectory = Annotated[ArtifactRef, Kind("trajectory")]
RewardRef = Annotated[ArtifactRef, Kind("reward")]
Weights = Annotated[ArtifactRef, Kind("weights")]
Text = Annotated[ArtifactRef, Kind("text")]
Json = Annotated[ArtifactRef, Kind("json")]


def full_reference(value: ArtifactRef | str) -> str:
    """A reference as text, in full: a prefix that is unique today may name two artifacts tomorrow."""
    return f"{value.kind}:{value.digest}" if isinstance(value, ArtifactRef) else value


def plain(value: Any) -> Any:
    """A parameter's value as plain data: what rows keep, and what starts the workflow again."""
    match value:
        case ArtifactRef():
            return full_reference(value)
        case list() | tuple():
            return [plain(item) for item in value]
        case dict():
            return {key: plain(item) for key, item in value.items()}
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else value


def resolved(catalog: Catalog, name: str, value: Any, kind: str) -> Any:
    """The value of a parameter of that kind with the texts in it looked up, in lists and mappings too.

    Raises:
        UnknownReference, AmbiguousReference: the catalog cannot tell what is meant.
        InvalidParameter: it is an artifact of another kind.
    """
    match value:
        case str():
            ref = catalog.artifacts.resolve(value)
            if ref.kind != kind:
                raise InvalidParameter(name, value, f"use an artifact of kind {kind}: it is a {ref.kind}")
            return ref
        case list() | tuple():
            return [resolved(catalog, name, item, kind) for item in value]
        case dict():
            return {key: resolved(catalog, name, item, kind) for key, item in value.items()}
    return value
