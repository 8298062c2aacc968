"""run: a workflow from the shell, here or on the flow pool."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mutoscope.platform.cli import render

if TYPE_CHECKING:
    from mutoscope.platform.catalog import WorkflowRecord
    from mutoscope.platform.cli.follow import Follower
    from mutoscope.platform.cli.home import Home
    from mutoscope.platform.refs import ArtifactRef

PICKUP_SECONDS = 60.0
"""How long a submitted flow run may wait for the pool before that is worth a line."""


def run(
    workflow: Annotated[str, typer.Argument(help="A workflow's name or id, such as text_to_video.")],
    parameters: Annotated[
        list[str] | None, typer.Argument(help="key=value, as the workflow takes them.")
    ] = None,
    weights: Annotated[
        list[str] | None,
        typer.Option(
            "--weights",
            metavar="VERSION",
            help="Use these weights instead of the live ones, such as flux-t2i/transformer@12 or "
            "flux-t2i@candidate; may be repeated.",
        ),
    ] = None,
    priority: Annotated[
        int, typer.Option(help="Its runs are claimed before those of lower numbers; 0 is usual.")
    ] = 0,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Also save the results in this folder.")
    ] = None,
    submit: Annotated[
        bool, typer.Option("--submit", help="Run on the flow pool; this only follows.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and no progress.")] = False,
) -> None:
    """Run a workflow and print what it made. An image may be a reference (image:3fa9) or a file.

    Example: mutoscope run text_to_video prompt="a red circle left of a blue square, drifting right" seed=7
    """
    from mutoscope.platform.cli.follow import follower
    from mutoscope.platform.cli.values import split_assignments
    from mutoscope.platform.orchestration.launch_tags import priority_tags

    texts, pinned = split_assignments(parameters or []), tuple(weights or ())
    marks = priority_tags(priority)
    home = joined_home()
    started = time.monotonic()
    launch = submit_and_follow if submit else run_here
    with follower(render.say, quiet=json) as watch:
        values = read_values(home, workflow, texts)
        finished = launch(home, workflow, values, watch, pinned, marks)
    report(home, finished, time.monotonic() - started, output=output, json=json)


def joined_home() -> Home:
    """The home, with this process joined to its stack, before anything imports Prefect.

    Raises:
        ServerUnavailable: no stack runs here and no server is named by PREFECT_API_URL.
    """
    from mutoscope.platform.cli.api import answers
    from mutoscope.platform.cli.home import Home
    from mutoscope.platform.errors import ServerUnavailable

    home = Home()
    record = home.stack
    url = os.environ.get("PREFECT_API_URL")
    # The terminal shows our own progress; Prefect's log lines go to the server alone.
    os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
    if record is None and url is None:
        raise ServerUnavailable(f"no stack is running on {home.path}: start one with `mutoscope up`")
    if url is not None and not answers(f"{url}/health"):
        raise ServerUnavailable(f"no Prefect server answers at {url}: start one with `mutoscope up`")
    return home


def read_values(home: Home, workflow: str, texts: Mapping[str, str]) -> dict[str, Any]:
    """Command-line texts as the workflow's parameters; a file where it takes an artifact becomes one.

    Raises:
        UnknownWorkflow, InvalidParameter: no such workflow or parameter, or a file of another kind.
    """
    from mutoscope.platform.cli.values import as_file
    from mutoscope.platform.errors import InvalidParameter
    from mutoscope.platform.orchestration.launch import find_workflow
    from mutoscope.platform.orchestration.media import INGEST

    declared = find_workflow(workflow, texts)
    references = {name: text for name, text in texts.items() if name in declared.references}
    values = declared.coerce(texts)
    for name, text in references.items():
        path = as_file(name, text)
        if path is None:
            continue
        kind = declared.references[name]
        if kind not in INGEST:
            remedy = f"use a reference such as {kind}:3fa9c1: only {' and '.join(INGEST)} is taken from files"
            raise InvalidParameter(name, text, remedy)
        values[name] = str(INGEST[kind](path, home.runtime))
    return values


def run_here(
    home: Home,
    workflow: str,
    values: Mapping[str, Any],
    watch: Follower,
    weights: Sequence[str] = (),
    marks: Sequence[str] = (),
) -> WorkflowRecord:
    """Run the flow in this process. Ctrl-C cancels it and the engine runs that only it waits for."""
    import asyncio

    from mutoscope.platform.orchestration.launch import run_workflow

    running = run_workflow(
        workflow,
        values,
        weights=weights,
        marks=marks,
        watch=watch,
        on_open=watch.opened,
        on_notice=render.note,
    )
    outcome = asyncio.run(running)
    return home.catalog.workflows.get(outcome.run_id)


def submit_and_follow(
    home: Home,
    workflow: str,
    values: Mapping[str, Any],
    watch: Follower,
    weights: Sequence[str] = (),
    marks: Sequence[str] = (),
) -> WorkflowRecord:
    """Queue the flow on the pool and follow it in the catalog until it ends. Ctrl-C only stops following.

    Raises:
        RunFailed, RunCancelled: how it ended, with the recorded line.
    """
    import asyncio

    from mutoscope.platform.orchestration.launch import submit_workflow

    flow_run_id = asyncio.run(submit_workflow(workflow, values, weights=weights, marks=marks))
    render.note(f"flow run {flow_run_id} is queued")
    return follow_flow_run(home, flow_run_id, watch)


def follow_flow_run(home: Home, flow_run_id: str, watch: Follower) -> WorkflowRecord:
    """Watch a flow run's row and its engine runs until the row closes."""
    from mutoscope.platform.errors import RunCancelled, RunFailed

    begun = time.monotonic()
    reminded = False
    while True:
        record = home.catalog.workflows.find_by_flow_run(flow_run_id)
        if record is not None:
            watch.opened(record.id)
            for engine_run in reversed(home.catalog.runs.list(workflow_run_id=record.id)):
                watch(engine_run)
            if record.state != "running" and not record.may_start_again:
                break
        else:
            raise_if_ended(flow_run_id)
            if not reminded and time.monotonic() - begun > PICKUP_SECONDS:
                render.note("the flow pool has not taken it yet: is it alive? see `mutoscope status`")
                reminded = True
        time.sleep(0.2)
    if record.state == "succeeded":
        return record
    message = (record.error or {}).get("message") or f"workflow run {record.id} ended as {record.state}"
    raise (RunCancelled if record.state == "cancelled" else RunFailed)(message)


def raise_if_ended(flow_run_id: str) -> None:
    """Raise when a flow run ended before it opened a row: bad input, or a process that never came up.

    Raises:
        InvalidInput: with the line of the failed flow run.
    """
    from mutoscope.platform.cli.api import get_json
    from mutoscope.platform.errors import InvalidInput

    try:
        state = get_json(f"{os.environ['PREFECT_API_URL']}/flow_runs/{flow_run_id}")["state"] or {}
    except OSError:
        return  # a server that is busy or away says nothing about the flow run; it is asked again
    if state.get("type") in ("FAILED", "CRASHED", "CANCELLED"):
        raise InvalidInput(state.get("message") or f"flow run {flow_run_id} ended as {state['name']}")


def report(
    home: Home, finished: WorkflowRecord, seconds: float, *, output: Path | None = None, json: bool = False
) -> dict[str, Path]:
    """Print a finished workflow's outputs, saving them if asked. Returns the saved files by output name."""
    from mutoscope.platform.reward import told

    outputs = {name: _artifact(home, digest) for name, digest in (finished.outputs or {}).items()}
    saved = save_outputs(home, outputs, output) if output is not None else {}
    warnings = _warnings(home, finished)
    if json:
        render.emit_json(
            {
                "workflow_run": finished.id,
                "flow_run": finished.prefect_flow_run_id,
                "flow_run_url": flow_run_url(home, finished),
                "page": home.run_page_url(finished),
                "outputs": {
                    name: ref.to_dict()
                    | {"url": home.artifact_url(ref.digest), "file": _text(saved.get(name))}
                    for name, ref in outputs.items()
                },
                "warnings": warnings,
            }
        )
        return saved
    for warning in warnings:
        render.say(f"{'note':<12} {warning['card']}: {warning['warning']}")
    for name, ref in outputs.items():
        local = saved.get(name) or home.store.local_path(ref.digest)
        render.say(f"{name:<12} {ref}  {local or home.store.url(ref.digest)}")
        if ref.kind == "reward":
            render.say(f"{'':<12} {told(ref.meta)}")
        if url := home.artifact_url(ref.digest):
            render.say(f"{'':<12} {url}")
    render.say(f"{'took':<12} {render.seconds(seconds)}")
    render.say(f"{'page':<12} {home.run_page_url(finished)}")
    if url := flow_run_url(home, finished):
        render.say(f"{'flow run':<12} {url}")
    return saved


def _warnings(home: Home, finished: WorkflowRecord) -> list[dict[str, str]]:
    """What its engine runs have to say although they succeeded, those that the memo answered included."""
    asked = home.catalog.runs.get_many(home.catalog.calls.asked(finished.id))
    return [
        {"run": run.id, "card": run.card or run.kind, "warning": line}
        for run in sorted(asked.values(), key=lambda run: run.id)
        for line in run.warnings or ()
    ]


def save_outputs(home: Home, outputs: Mapping[str, ArtifactRef], folder: Path) -> dict[str, Path]:
    """Write outputs into a folder, named after their slot."""
    from mutoscope.platform.cli.browse import save
    from mutoscope.platform.errors import InvalidParameter

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidParameter("output", str(folder), f"name a folder ({error.strerror})") from None
    return {name: save(home, ref, folder, name) for name, ref in outputs.items()}


def flow_run_url(home: Home, finished: WorkflowRecord) -> str | None:
    """The page of its flow run in the Prefect UI."""
    if home.stack is None or finished.prefect_flow_run_id is None:
        return None
    return f"{home.stack.prefect_ui_url}/runs/flow-run/{finished.prefect_flow_run_id}"


def _artifact(home: Home, digest: str) -> ArtifactRef:
    ref = home.catalog.artifacts.get(digest)
    assert ref is not None, "a workflow's outputs are recorded before it is closed"
    return ref


def _text(path: Path | None) -> str | None:
    return str(path) if path is not None else None
