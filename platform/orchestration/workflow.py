"""The `@workflow` decorator: an async function becomes a recorded Prefect flow.

    @workflow("image_video.t2i_i2v", requires=["flux-t2i", "wan-i2v"])
    async def text_to_video(prompt: Prompt, seed: Seed = None) -> Filmed: ...

An execution validates its parameters, draws a seed if it has a `seed` parameter and none was given, opens a
row in the catalog under the workflow that called it, and closes that row with outputs or error. What it
returns is held against its return annotation (see `outputs`). Prefect's own state is telemetry: its failure
message is the same one line that the row and the caller get.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, ParamSpec, TypeVar, cast

from prefect import Flow, tags
from prefect.logging import get_run_logger
from prefect.runtime import flow_run as prefect_flow_run
from prefect.states import Cancelled, Failed
from prefect.utilities.callables import ParameterSchema, parameter_schema

from mutoscope.platform import ids
from mutoscope.platform.errors import InvalidWorkflow, MutoscopeError, WorkflowCancelled
from mutoscope.platform.orchestration import signature
from mutoscope.platform.orchestration.execution import execute
from mutoscope.platform.orchestration.labels import flow_run_label
from mutoscope.platform.orchestration.outputs import outputs_of
from mutoscope.platform.orchestration.registry import REGISTRY, Registry, Workflow
from mutoscope.platform.orchestration.schedule import Schedule

P = ParamSpec("P")
R = TypeVar("R")
WorkflowFunction = Callable[P, Coroutine[Any, Any, R]]

TAG = "mutoscope"
"""Tag of every deployment and flow run of ours."""


def workflow(
    id: str,  # noqa: A002
    *,
    requires: Sequence[str | Flow[..., Any]] = (),
    name: str | None = None,
    description: str | None = None,
    schedules: Sequence[Schedule] = (),
    most_running: int | None = None,
    time_limit: float | None = None,
    registry: Registry = REGISTRY,
) -> Callable[[WorkflowFunction[P, R]], Flow[P, Coroutine[Any, Any, R]]]:
    """Declare a workflow.

    Args:
        id: dotted snake case; shares one namespace with card ids.
        requires: the cards and workflows it may run, by id or, for a workflow, by function; anything else is
            refused when it is run.
        name: snake case, the function's name by default.
        description: Markdown for the UI, the docstring by default.
        schedules: when it starts by itself once it is deployed.
        most_running: how many of its runs may be under way at a time; more wait on the pool.
        time_limit: seconds that one execution may take before it is stopped; None: as long as it needs.

    Raises:
        InvalidWorkflow: the declaration collides with another, closes a cycle, or its signature is unusable.
    """

    def declare(fn: WorkflowFunction[P, R]) -> Flow[P, Coroutine[Any, Any, R]]:
        if not inspect.iscoroutinefunction(fn):
            raise InvalidWorkflow(f"{fn.__qualname__} is not async: a workflow is an async function")
        model, bound = signature.parameter_model(fn), signature.permissive(fn)
        outputs = outputs_of(fn)

        @functools.wraps(fn)
        async def body(*args: Any, **kwargs: Any) -> Any:
            try:
                # The tag marks every run inside as one that sends the heartbeats which the automation counts.
                with tags(TAG):
                    return await execute(declared, registry, fn, bound.bind(*args, **kwargs).arguments)
            except MutoscopeError as error:
                # A returned state keeps the message to the one line; Prefect still raises `error` at the
                # caller.
                get_run_logger().error("%s", error)
                ended = Cancelled if isinstance(error, WorkflowCancelled) else Failed
                return ended(message=str(error), data=error)

        body.__signature__ = bound  # type: ignore[attr-defined]
        flow = _flow(fn, body, name or fn.__name__, description or inspect.getdoc(fn))
        flow.parameters = _form(fn, model)
        declared = Workflow(
            id=id,
            name=flow.name,
            description=flow.description or "",
            requires=tuple(each if isinstance(each, str) else registry.id_of(each) for each in requires),
            entrypoint=f"{fn.__module__}.{fn.__qualname__}",
            parameters=model,
            outputs=outputs,
            flow=flow,
            schedules=tuple(schedules),
            most_running=most_running,
            time_limit=time_limit,
        )
        registry.register(declared)
        return cast("Flow[P, Coroutine[Any, Any, R]]", flow)

    return declare


def _flow(
    fn: Callable[..., Any], body: WorkflowFunction[..., Any], name: str, description: str | None
) -> Flow[..., Any]:
    """The Prefect flow that executes `body` for the workflow written as `fn`."""
    return Flow(
        body,
        name=name,
        version=_version(fn),
        description=description,
        flow_run_name=_run_name,
        # `execute` validates, with our own messages; see signature.permissive.
        validate_parameters=False,
        persist_result=False,
        retries=0,
    )


def _run_name() -> str:
    return flow_run_label(str(prefect_flow_run.flow_name), prefect_flow_run.parameters or {})


def _version(fn: Callable[..., Any]) -> str | None:
    """Digest of the workflow's source file, so that the UI shows which code a run executed."""
    try:
        source = inspect.getsource(inspect.getmodule(fn) or fn)
    except (OSError, TypeError):
        return None
    return ids.sha256(source.encode())[:12]


def _form(fn: Callable[..., Any], model: Any) -> ParameterSchema:
    """Prefect's parameter schema, with the titles and descriptions that it leaves out of annotated types.

    What may be left empty is one field that is left empty: `int | None` would be a choice of two types.
    """
    schema = parameter_schema(fn)
    described = model.model_json_schema()["properties"]
    for name, entry in schema.properties.items():
        entry.update(
            {key: described[name][key] for key in ("title", "description") if key in described[name]}
        )
        choices = [choice for choice in entry.get("anyOf", ()) if choice.get("type") != "null"]
        if len(choices) == 1 and len(choices) < len(entry["anyOf"]):
            del entry["anyOf"]
            entry.update(choices[0])
            if entry.get("default", "") is None:
                del entry["default"]
    return schema
