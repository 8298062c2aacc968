"""One declared output of a workflow: artifacts of a kind, or JSON data of a type."""

from __future__ import annotations

import re
import types
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, NotRequired, Required, Union, get_args, get_origin

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError

from mutoscope.platform.engine.card import invalid_parameter
from mutoscope.platform.errors import InvalidWorkflow
from mutoscope.platform.orchestration.kinds import Kind
from mutoscope.platform.refs import ArtifactRef


@dataclass(frozen=True, slots=True)
class Produced:
    """What one execution returned, taken apart.

    Attributes:
        artifacts: by output name; those of lists and mappings as ``frames.0`` and ``views.left``.
        values: JSON data by output name.
    """

    artifacts: dict[str, ArtifactRef] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)


class Unfit(Exception):
    """A value that is not what its output holds; `wanted` says what would be."""

    def __init__(self, value: Any, wanted: str) -> None:
        super().__init__(value, wanted)
        self.value, self.wanted = value, wanted


@dataclass(frozen=True, slots=True)
class Output(ABC):
    """`required`: whether every execution makes it."""

    name: str
    required: bool

    @property
    @abstractmethod
    def wanted(self) -> str:
        """What it holds, in words."""

    @abstractmethod
    def put(self, value: Any, into: Produced) -> None:
        """Book a value under the output's name. Raises Unfit."""


@dataclass(frozen=True, slots=True)
class ArtifactOutput(Output):
    """One artifact. `kind`: empty where any will do."""

    kind: str

    @property
    def wanted(self) -> str:
        return f"an artifact of kind {self.kind}" if self.kind else "an artifact"

    def put(self, value: Any, into: Produced) -> None:
        if not (isinstance(value, ArtifactRef) and self.kind in ("", value.kind)):
            raise Unfit(value, self.wanted)
        into.artifacts[self.name] = value


@dataclass(frozen=True, slots=True)
class ManyOutput(Output):
    """A list or a mapping of artifacts."""

    item: ArtifactOutput
    mapping: bool

    @property
    def wanted(self) -> str:
        return f"a {'mapping' if self.mapping else 'list'} of which each is {self.item.wanted}"

    def put(self, value: Any, into: Produced) -> None:
        items: Iterable[tuple[Any, Any]]
        if self.mapping and isinstance(value, Mapping):
            items = value.items()
        elif not self.mapping and isinstance(value, list | tuple):
            items = enumerate(value)
        else:
            raise Unfit(value, self.wanted)
        for key, each in items:
            replace(self.item, name=f"{self.name}.{key}").put(each, into)


@dataclass(frozen=True, slots=True)
class JsonOutput(Output):
    """Plain data, which is checked without being converted."""

    hint: Any
    adapter: TypeAdapter[Any]

    @property
    def wanted(self) -> str:
        return f"JSON data of type {_type_name(self.hint)}"

    def put(self, value: Any, into: Produced) -> None:
        into.values[self.name] = self.plain(value)

    def plain(self, value: Any) -> Any:
        """The value as JSON data. Raises Unfit."""
        try:
            return self.adapter.dump_python(self.adapter.validate_python(value, strict=True), mode="json")
        except ValidationError as error:
            raise Unfit(value, f"{self.wanted} ({invalid_parameter(error, {})})") from None
        except ValueError as error:
            raise Unfit(value, f"{self.wanted} ({error})") from None


def output_of(name: str, hint: Any) -> Output:
    """The output that an annotation declares. Raises InvalidWorkflow: nothing of its type can be kept."""
    required = True
    if get_origin(hint) in (NotRequired, Required):
        required = get_origin(hint) is Required
        (hint,) = get_args(hint)
    inner = _without_none(hint)
    if (made := _of_artifacts(name, inner, required and inner is hint)) is not None:
        return made
    try:
        return JsonOutput(name, required, hint, TypeAdapter(hint))
    except (PydanticSchemaGenerationError, PydanticUserError):
        raise InvalidWorkflow(
            f"output {name or 'result'} is a {_type_name(hint)}: "
            "use an artifact kind such as Image, or JSON data"
        ) from None


def _of_artifacts(name: str, hint: Any, required: bool) -> Output | None:
    if (kind := _kind(hint)) is not None:
        return ArtifactOutput(name, required, kind)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is list or (origin is not None and origin in (dict, Mapping)):
        kind = _kind(arguments[-1])
        if kind is not None:
            return ManyOutput(name, required, ArtifactOutput(name, True, kind), origin is not list)
    return None


def _kind(hint: Any) -> str | None:
    """The kind of artifact that an annotation stands for, empty for any; None if it stands for none."""
    if hint is ArtifactRef:
        return ""
    if get_origin(hint) is Annotated and get_args(hint)[0] is ArtifactRef:
        return next((mark.name for mark in hint.__metadata__ if isinstance(mark, Kind)), "")
    return None


def _without_none(hint: Any) -> Any:
    """`Image` of `Image | None`; anything else as it is."""
    if get_origin(hint) in (Union, types.UnionType):
        rest = [each for each in get_args(hint) if each is not type(None)]
        if len(rest) == 1:
            return rest[0]
    return hint


def _type_name(hint: Any) -> str:
    plain_class = isinstance(hint, type) and not get_args(hint)
    return hint.__name__ if plain_class else re.sub(r"\b(\w+\.)+", "", str(hint))
