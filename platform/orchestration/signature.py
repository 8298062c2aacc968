"""A workflow's parameters: one pydantic model made from its signature.

The same model validates a call, explains a bad value in one line, reads `key=value` texts from a command
line, and describes the form that the Prefect UI shows.
"""

from __future__ import annotations

import contextlib
import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any, get_args, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from mutoscope.platform.engine.card import invalid_parameter
from mutoscope.platform.errors import InvalidParameter, InvalidWorkflow
from mutoscope.platform.orchestration.kinds import Kind


def parameter_model(fn: Callable[..., Any]) -> type[BaseModel]:
    """The model of `fn`'s parameters. Raises InvalidWorkflow unless all are named and annotated."""
    hints = annotations_of(fn)
    fields: dict[str, Any] = {}
    for name, parameter in inspect.signature(fn).parameters.items():
        if (
            parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
            or name not in hints
        ):
            raise InvalidWorkflow(
                f"{fn.__qualname__} takes {parameter}: a workflow takes named parameters with annotations"
            )
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[name] = (hints[name], default)
    return create_model(fn.__name__, __config__=ConfigDict(extra="forbid"), **fields)


def annotations_of(fn: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of a function as types. Raises InvalidWorkflow: one cannot be read where it stands."""
    try:
        return get_type_hints(fn, include_extras=True)
    except NameError as error:
        raise InvalidWorkflow(
            f"{fn.__qualname__} has an annotation that cannot be read ({error}): "
            "import or define its types at the top of the module, not under TYPE_CHECKING or in a function"
        ) from None


def check_names(owner: str, model: type[BaseModel], given: Mapping[str, Any]) -> None:
    """Raise InvalidParameter for the first name in `given` that the model lacks."""
    for name, value in given.items():
        if name not in model.model_fields:
            raise InvalidParameter(name, value, f"{owner} takes {', '.join(model.model_fields)}")


def validate(owner: str, model: type[BaseModel], given: Mapping[str, Any]) -> dict[str, Any]:
    """`given` as validated values with defaults filled in. None for a required parameter counts as missing.

    Raises:
        InvalidParameter: names the first field that is wrong, its value and what would be accepted.
    """
    check_names(owner, model, given)
    present = {k: v for k, v in given.items() if v is not None or not model.model_fields[k].is_required()}
    try:
        validated = model.model_validate(present)
    except ValidationError as error:
        raise invalid_parameter(error, given) from None
    return {name: getattr(validated, name) for name in model.model_fields}


def references(model: type[BaseModel]) -> dict[str, str]:
    """Names of the parameters that take an artifact, with its kind."""
    properties: dict[str, dict[str, Any]] = model.model_json_schema().get("properties", {})
    return {
        name: str(way["artifact"])
        for name, entry in properties.items()
        for way in (entry, *entry.get("anyOf", ()))
        if "artifact" in way
    }


def artifact_parameters(model: type[BaseModel]) -> dict[str, str]:
    """Names of the parameters for which the function gets references, in lists and mappings too, with their
    kind.

    Those are annotated with a `Kind`. A text that only says in its schema which kind it names stays a text.
    """
    marks = {name: _mark(field.rebuild_annotation()) for name, field in model.model_fields.items()}
    return {name: mark.name for name, mark in marks.items() if mark is not None}


def _mark(hint: Any) -> Kind | None:
    """The kind's mark in an annotation, however deep."""
    marks = [each for each in getattr(hint, "__metadata__", ()) if isinstance(each, Kind)]
    if marks:
        return marks[0]
    return next((mark for each in get_args(hint) if (mark := _mark(each)) is not None), None)


_OUT_OF_RANGE = frozenset({"greater_than", "greater_than_equal", "less_than", "less_than_equal"})


def coerce(model: type[BaseModel], texts: Mapping[str, str]) -> dict[str, Any]:
    """Command-line texts as the values they spell: `{"seed": "7"}` becomes `{"seed": 7}` where seed is an
    integer.

    Never raises: a text that its field cannot read stays text, for the workflow itself to refuse.
    """
    values: dict[str, Any] = dict(texts)
    for name in set(texts) & set(model.model_fields):
        field = model.model_fields[name]
        single = create_model(name, **{name: (field.rebuild_annotation(), ...)})  # type: ignore[call-overload]
        try:
            values[name] = getattr(single.model_validate_strings({name: texts[name]}), name)
        except ValidationError as error:
            if all(problem["type"] in _OUT_OF_RANGE for problem in error.errors()):
                # The right type beyond its limits: the refusal should be about the number, not about text.
                with contextlib.suppress(ValueError):
                    values[name] = json.loads(texts[name])
    return values


def permissive(fn: Callable[..., Any]) -> inspect.Signature:
    """`fn`'s signature with None as the default of required parameters.

    Prefect binds a call before it creates a run. With this signature a call that lacks a parameter still gets
    its run, which then fails with the same line as any other bad input.
    """
    signature = inspect.signature(fn, eval_str=True)
    return signature.replace(
        parameters=[
            p.replace(default=None) if p.default is p.empty else p for p in signature.parameters.values()
        ]
    )
