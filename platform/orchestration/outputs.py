"""What a workflow returns, by the annotation it is declared with.

    -> Image                     one artifact; the output is called by its kind, ``image``
    -> dict[str, Video]          artifacts of a kind, by names of the function's own; ArtifactRef: of any kind
    -> Filmed, a TypedDict       each field is an output: an artifact, a list or mapping of artifacts, or
                                 plain JSON data
    -> None, or anything else    nothing is kept; a value is only handed to the caller, after a check

What is to be kept has a name. A field that is `NotRequired`, or None where its type allows that, is an output
which this execution did not make.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, get_type_hints, is_typeddict

from mutoscope.platform.errors import InvalidWorkflow
from mutoscope.platform.orchestration.output import (
    ArtifactOutput,
    JsonOutput,
    ManyOutput,
    Output,
    Produced,
    Unfit,
    output_of,
)
from mutoscope.platform.orchestration.signature import annotations_of
from mutoscope.platform.refs import ArtifactRef
from mutoscope.platform.wording import excerpt


class Outputs(ABC):
    """All that a workflow declares to return."""

    @abstractmethod
    def of(self, owner: str, result: Any) -> Produced:
        """A result taken apart.

        Raises:
            InvalidWorkflow: it is not what workflow `owner` declares; names the output, what is there and
                what should be.
        """

    @abstractmethod
    def by_name(self, result: Any) -> dict[str, Any]:
        """A result that `of` accepts as a mapping of outputs."""

    @abstractmethod
    def describe(self) -> dict[str, str]:
        """What there is by name, in words."""


@dataclass(frozen=True, slots=True)
class Lone(Outputs):
    """One artifact, called by its kind."""

    output: ArtifactOutput

    def of(self, owner: str, result: Any) -> Produced:
        named = {self._name(result): result} if self._made(result) else {}
        return _taken(owner, {name: replace(self.output, name=name) for name in named}, named)

    def by_name(self, result: Any) -> dict[str, Any]:
        return {self._name(result): result} if self._made(result) else {}

    def describe(self) -> dict[str, str]:
        return {self.output.kind or "artifact": self.output.wanted}

    def _made(self, result: Any) -> bool:
        return result is not None or self.output.required

    def _name(self, result: Any) -> str:
        return self.output.kind or str(getattr(result, "kind", "artifact"))


@dataclass(frozen=True, slots=True)
class Free(Outputs):
    """Artifacts by names of the function's own."""

    item: ArtifactOutput

    def of(self, owner: str, result: Any) -> Produced:
        named = _mapping(owner, result)
        return _taken(owner, {name: replace(self.item, name=name) for name in named}, named)

    def by_name(self, result: Any) -> dict[str, Any]:
        return dict(result)

    def describe(self) -> dict[str, str]:
        return {"*": self.item.wanted}


@dataclass(frozen=True, slots=True)
class Fields(Outputs):
    """Outputs by the names of a TypedDict."""

    outputs: Mapping[str, Output]

    def of(self, owner: str, result: Any) -> Produced:
        named = _mapping(owner, result)
        for name in named:
            if name not in self.outputs:
                raise _wrong(owner, name, named[name], f"one of {', '.join(self.outputs)}")
        made = {
            name: named.get(name)
            for name, output in self.outputs.items()
            if output.required or named.get(name) is not None
        }
        return _taken(owner, self.outputs, made)

    def by_name(self, result: Any) -> dict[str, Any]:
        return dict(result)

    def describe(self) -> dict[str, str]:
        return {
            name: output.wanted if output.required else f"{output.wanted}, if made"
            for name, output in self.outputs.items()
        }


@dataclass(frozen=True, slots=True)
class Unkept(Outputs):
    """A value for the caller alone."""

    value: JsonOutput

    def of(self, owner: str, result: Any) -> Produced:
        _taken(owner, {"result": self.value}, {"result": result})
        return Produced()

    def by_name(self, result: Any) -> dict[str, Any]:
        return {} if result is None else {"result": result}

    def describe(self) -> dict[str, str]:
        return {}


def outputs_of(fn: Callable[..., Any]) -> Outputs:
    """What a function's return annotation declares.

    Raises:
        InvalidWorkflow: there is none, or it stands for nothing that can be returned.
    """
    hints = annotations_of(fn)
    if "return" not in hints:
        raise InvalidWorkflow(
            f"{fn.__qualname__} does not say what it returns: annotate it, such as -> Image or -> None"
        )
    declared = hints["return"]
    if is_typeddict(declared):
        fields = get_type_hints(declared, include_extras=True)
        return Fields({name: output_of(name, hint) for name, hint in fields.items()})
    match output_of("", declared):
        case ArtifactOutput() as output:
            return Lone(output)
        case ManyOutput(mapping=True) as output:
            return Free(output.item)
        case JsonOutput() as value:
            return Unkept(value)
    raise InvalidWorkflow(
        f"{fn.__qualname__} returns a list, whose items have no names: return a TypedDict that holds the list"
    )


def _taken(owner: str, outputs: Mapping[str, Output], named: Mapping[str, Any]) -> Produced:
    produced = Produced()
    for name, value in named.items():
        try:
            outputs[name].put(value, produced)
        except Unfit as unfit:
            raise _wrong(owner, name, unfit.value, unfit.wanted) from None
    return produced


def _mapping(owner: str, result: Any) -> Mapping[str, Any]:
    if isinstance(result, Mapping):
        return result
    raise _wrong(owner, "result", result, "a mapping of outputs by name")


def _wrong(owner: str, name: str, value: Any, wanted: str) -> InvalidWorkflow:
    shown = str(value) if isinstance(value, ArtifactRef) else excerpt(repr(value))
    return InvalidWorkflow(
        f"workflow {owner!r} returned {name}={shown} where it declares {wanted}: mend either"
    )
