"""The `@workflow` decorator: an async function becomes a recorded Prefect flow.

    @workflow("image_video.t2i_i2v", requires=["flux-t2i", "wan-i2v"])
    async def text_to_video(prompt: Prompt, seed: Seed = None) -> dict[str, ArtifactRef]: ...

An execution validates its parameters, draws a seed if it has a `seed` parameter and none was given, opens a
row in the catalog under the workflow that called it, and closes that row with outputs or error. Prefect's own
state is telemetry: its failure message is the same one line that the row and the caller get.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar, cast

from prefect import Flow, tags
from prefect.context import FlowRunContext
from prefect.logging import get_run_logger
from prefect.runtime import flow_run as prefect_flow_run
from prefect.states import Failed
from prefect.utilities.callables import ParameterSchema, parameter_schema

from mutoscope.platform import ids
from mutoscope.platform.catalog.workflows import WorkflowState
from mutoscope.platform.custody.pages_path import INDEX, run_folder
from mutoscope.platform.errors import InvalidWorkflow, MutoscopeError
from mutoscope.platform.orchestration import signature
from mutoscope.platform.orchestration.context import WorkflowContext, current_workflow, opened
from mutoscope.platform.orchestration.pages import RUN_PAGES
from mutoscope.platform.orchestration.plan import draw_seed
from mutoscope.platform.orchestration.publish import Publications
from mutoscope.platform.orchestration.registry import REGISTRY, Registry, Workflow
from mutoscope.platform.orchestration.runtime import Runtime, get_runtime
from mutoscope.platform.orchestration.selection import Pins, from_tags, pins_of
from mutoscope.platform.orchestration.submit import withdraw
from mutoscope.platform.refs import ArtifactRef
from mutoscope.platform.wording import excerpt

P = ParamSpec("P")
R = TypeVar("R")
WorkflowFunction = Callable[P, Coroutine[Any, Any, R]]

TAG = "mutoscope"
"""Tag of every deployment and flow run of ours."""


def workflow(
    id: str,  # noqa: A002
    *,
    requires: Sequence[str] = (),
    name: str | None = None,
    description: str | None = None,
    registry: Registry = REGISTRY,
) -> Callable[[WorkflowFunction[P, R]], Flow[P, Coroutine[Any, Any, R]]]:
    """Declare a workflow.

    Args:
        id: dotted snake case; shares one namespace with card ids.
        requires: ids of the cards and workflows it may run; anything else is refused when it is run.
        name: snake case, the function's name by default.
        description: Markdown for the UI, the docstring by default.

    Raises:
        InvalidWorkflow: the declaration collides with another, closes a cycle, or its signature is unusable.
    """

    def declare(fn: WorkflowFunction[P, R]) -> Flow[P, Coroutine[Any, Any, R]]:
        if not inspect.iscoroutinefunction(fn):
            raise InvalidWorkflow(f"{fn.__qualname__} is not async: a workflow is an async function")
        model, bound = signature.parameter_model(fn), signature.permissive(fn)

        @functools.wraps(fn)
        async def body(*args: Any, **kwargs: Any) -> Any:
            try:
                return await _execute(declared, registry, fn, bound.bind(*args, **kwargs).arguments)
            except MutoscopeError as error:
                # A returned state keeps the message to the one line; Prefect still raises `error` at the
                # caller.
                get_run_logger().error("%s", error)
                return Failed(message=str(error), data=error)

        body.__signature__ = bound  # type: ignore[attr-defined]
        flow: Flow[..., Any] = Flow(
            body,
            name=name or fn.__name__,
            version=_version(fn),
            description=description or inspect.getdoc(fn),
            flow_run_name=_run_name,
            # `_execute` validates, with our own messages; see signature.permissive.
            validate_parameters=False,
            persist_result=False,
            retries=0,
        )
        flow.parameters = _form(fn, model)
        declared = Workflow(
            id=id,
            name=flow.name,
            description=flow.description or "",
            requires=tuple(requires),
            entrypoint=f"{fn.__module__}.{fn.__qualname__}",
            parameters=model,
            flow=flow,
        )
        registry.register(declared)
        return cast("Flow[P, Coroutine[Any, Any, R]]", flow)

    return declare


async def _execute(
    declared: Workflow,
    registry: Registry,
    fn: Callable[..., Coroutine[Any, Any, R]],
    given: Mapping[str, Any],
) -> R:
    parent = current_workflow.get()
    registry.check_requirements(declared)
    if parent is not None:
        parent.enter(declared.id)
    values = declared.validate(given)
    if "seed" in values and values["seed"] is None:
        values["seed"] = draw_seed()
        get_run_logger().info("seed %d drawn", values["seed"])
    runtime = get_runtime()
    pins = parent.pins if parent else await asyncio.to_thread(_pins, runtime, registry, declared)
    recorded = {name: _recorded(value) for name, value in values.items()}
    run_id = await asyncio.to_thread(_open_row, runtime, declared.id, parent, recorded)
    context = WorkflowContext(
        run_id=run_id,
        chain=(*(parent.chain if parent else ()), declared.id),
        allowed=frozenset(declared.requires),
        page=f"{run_folder(run_id, declared.id, recorded)}/{INDEX}",
        publications=Publications(),
        pins=pins,
    )
    announce = opened.get()
    if announce is not None and parent is None:
        announce(context.run_id)
    token = current_workflow.set(context)
    try:
        # The tag marks every run below as one that sends the heartbeats which the automation counts.
        with tags(TAG):
            result = await fn(**values)
        outputs = as_outputs(result)
    except BaseException as error:
        await asyncio.shield(_close_failed(runtime, context, error))
        raise
    finally:
        current_workflow.reset(token)
    await asyncio.to_thread(runtime.catalog.workflows.finish, context.run_id, "succeeded", outputs=outputs)
    RUN_PAGES.add(runtime, context.run_id)
    await context.publications.drain()
    return result


async def _close_failed(runtime: Runtime, context: WorkflowContext, error: BaseException) -> None:
    """Close the row; when the execution was cut short, take back what it still waits for."""
    cut_short = not isinstance(error, Exception)
    if cut_short:
        while context.waiting:
            await withdraw(runtime, context.waiting.pop())
    record = {"type": type(error).__name__, "message": str(error) or type(error).__name__}
    state: WorkflowState = "cancelled" if cut_short else "failed"
    await asyncio.to_thread(runtime.catalog.workflows.finish, context.run_id, state, error=record)
    RUN_PAGES.add(runtime, context.run_id)
    if cut_short:
        context.publications.abandon()
    else:
        await context.publications.drain()


def _pins(runtime: Runtime, registry: Registry, declared: Workflow) -> Pins:
    """The weights that the flow run was started with, which its tags say."""
    flow_run = FlowRunContext.get()
    texts = from_tags(flow_run.flow_run.tags if flow_run and flow_run.flow_run else ())
    return pins_of(runtime.catalog, texts, registry.cards_of(declared))


def _open_row(
    runtime: Runtime, workflow_id: str, parent: WorkflowContext | None, recorded: Mapping[str, Any]
) -> str:
    flow_run = FlowRunContext.get()
    return runtime.catalog.workflows.start(
        workflow_id,
        recorded,
        parent.run_id if parent else None,
        str(flow_run.flow_run.id) if flow_run and flow_run.flow_run else None,
    )


def _recorded(value: Any) -> Any:
    if isinstance(value, ArtifactRef):
        return str(value)
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else value


def as_outputs(result: Any) -> dict[str, ArtifactRef]:
    """What a workflow returned, by output name: a mapping as it is, a single artifact under its kind."""
    if isinstance(result, ArtifactRef):
        return {result.kind: result}
    if isinstance(result, Mapping):
        return {str(name): ref for name, ref in result.items() if isinstance(ref, ArtifactRef)}
    return {}


def _run_name() -> str:
    """What the run is about, for lists: its prompt if it has one."""
    parameters = prefect_flow_run.parameters or {}
    subject = excerpt(str(parameters.get("prompt") or parameters.get("image") or ""))
    return subject or str(prefect_flow_run.flow_name)


def _version(fn: Callable[..., Any]) -> str | None:
    """Digest of the workflow's source file, so that the UI shows which code a run executed."""
    try:
        source = inspect.getsource(inspect.getmodule(fn) or fn)
    except (OSError, TypeError):
        return None
    return ids.sha256(source.encode())[:12]


def _form(fn: Callable[..., Any], model: Any) -> ParameterSchema:
    """Prefect's parameter schema, with the titles and descriptions that it leaves out of annotated types."""
    schema = parameter_schema(fn)
    described = model.model_json_schema()["properties"]
    for name, entry in schema.properties.items():
        entry.update(
            {key: described[name][key] for key in ("title", "description") if key in described[name]}
        )
    return schema
