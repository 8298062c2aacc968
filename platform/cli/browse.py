"""ls, show, get, open: looking at what the catalog knows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from mutoscope.platform.cli import render

if TYPE_CHECKING:
    from mutoscope.platform.catalog import RunRecord, WorkflowRecord
    from mutoscope.platform.catalog.attempts import AttemptRecord
    from mutoscope.platform.cli.home import Home
    from mutoscope.platform.refs import ArtifactRef

What = Literal["artifacts", "runs", "workflows"]


def list_recent(
    what: Annotated[What, typer.Argument(help="What to list.")] = "artifacts",
    kind: Annotated[
        str | None, typer.Option(help="Only this kind: image, video, latent, weights, ...")
    ] = None,
    workflow: Annotated[
        str | None, typer.Option(help="Only what this workflow, by name or id, made or ran.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="At most so many.")] = 20,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List recent artifacts, runs or workflow runs, newest first.

    Example: mutoscope ls --kind video --limit 5
    """
    from mutoscope.platform.cli.home import Home
    from mutoscope.platform.refs import check_kind

    home = Home()
    workflow = home.workflow_id(workflow) if workflow is not None else None
    if what == "artifacts":
        check_kind(kind)
        _list_artifacts(home, kind, workflow, limit, json)
    elif what == "runs":
        _list_runs(home, kind, limit, json)
    else:
        _list_workflows(home, workflow, limit, json)


def _list_artifacts(home: Home, kind: str | None, workflow: str | None, limit: int, json: bool) -> None:
    found = home.catalog.artifacts.list(kind=kind, limit=limit, workflow=workflow)
    if json:
        render.emit_json([ref.to_dict() for ref in found])
        return
    render.table(
        ["artifact", "size", "about"],
        [(str(ref), render.size(ref.size), _about(home, ref)) for ref in found],
        empty="none of these yet"
        if kind or workflow
        else "nothing yet: `mutoscope demo` makes a first video",
    )


def _about(home: Home, ref: ArtifactRef) -> str:
    runs = home.catalog.runs.generated_by(ref.digest)
    if not runs:
        return ref.media_type
    run = runs[0]
    prompt = run.parameters.get("prompt") or run.parameters.get("folder") or run.parameters.get("file") or ""
    seed = f"seed {run.seed} " if run.seed is not None and run.kind != "reward" else ""
    return f"{run.card or run.kind} {seed}{render.shorten(str(prompt))}".strip()


def _list_runs(home: Home, kind: str | None, limit: int, json: bool) -> None:
    found = home.catalog.runs.list(kind=kind, limit=limit)
    if json:
        render.emit_json([asdict(run) for run in found])
        return
    render.table(
        ["run", "card", "state", "age", "prompt"],
        [
            (
                run.id,
                run.card or run.kind,
                run.state,
                render.age(run.created_at),
                render.shorten(str(run.parameters.get("prompt") or "")),
            )
            for run in found
        ],
        empty=f"no {kind} run yet" if kind else "no run yet",
    )


def _list_workflows(home: Home, workflow: str | None, limit: int, json: bool) -> None:
    found = home.catalog.workflows.list(workflow=workflow, limit=limit)
    if json:
        render.emit_json([asdict(run) for run in found])
        return
    render.table(
        ["workflow run", "workflow", "state", "age", "prompt"],
        [
            (
                run.id,
                run.workflow,
                run.state,
                render.age(run.created_at),
                render.shorten(str(run.parameters.get("prompt") or "")),
            )
            for run in found
        ],
        empty=f"{workflow} has not run yet" if workflow else "no workflow has run yet",
    )


def show(
    what: Annotated[
        str,
        typer.Argument(
            help="An artifact (video:3fa9), weights (flux-t2i/transformer@1) or the beginning of a run's id."
        ),
    ],
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show everything known about an artifact, a run or a workflow run.

    Example: mutoscope show video:3fa9
    """
    from mutoscope.platform.cli.home import Home

    home = Home()
    described = describe(home, what)
    if json:
        render.emit_json(described)
        return
    render.pairs(
        {name: _said(name, value) for name, value in described.items() if not isinstance(value, dict)}
    )
    if "outputs" in described:
        refs = {slot: home.catalog.artifacts.get(digest) for slot, digest in described["outputs"].items()}
        described["outputs"] = {slot: str(ref) for slot, ref in refs.items()}
    for section, values in described.items():
        if isinstance(values, dict) and values:
            render.say(section)
            render.pairs(values, indent=2)


def _said(name: str, value: Any) -> Any:
    """A fact about an artifact as a person reads it; JSON keeps what it is."""
    if name == "present":
        return "yes" if value else "no"
    return f"{render.size(value)} ({value:,} bytes)" if name == "size" and value >= 1024 else value


def describe(home: Home, what: str) -> dict[str, Any]:
    """Plain data about what a reference or an id names.

    Raises:
        UnknownReference: neither an artifact nor a run goes by that name.
        AmbiguousReference: several do.
    """
    from mutoscope.platform.catalog import RunRecord, WeightVersion, WorkflowRecord

    match home.catalog.find(what):
        case RunRecord() as run:
            return describe_run(home, run)
        case WorkflowRecord() as workflow_run:
            return describe_workflow(home, workflow_run)
        case WeightVersion() as version:
            return describe_artifact(home, home.catalog.artifacts.resolve(version.digest))
        case ref:
            return describe_artifact(home, ref)


def describe_artifact(home: Home, ref: ArtifactRef) -> dict[str, Any]:
    """The reference, where its bytes are, what made it and what names it has."""
    present = home.store.contains(ref.digest)
    local = home.store.local_path(ref.digest) if present else None
    versions = home.catalog.weights.versions_of_digest(ref.digest)
    made_by = home.catalog.runs.generated_by(ref.digest)
    described: dict[str, Any] = {
        "artifact": str(ref),
        **{name: value for name, value in ref.to_dict().items() if name != "meta"},
        "present": present,
        "bytes": None if present else _whereabouts(home, ref),
        "path": str(local) if local else None,
        "url": home.artifact_url(ref.digest),
        "weights": [str(version) for version in versions],
        "meta": dict(ref.meta),
    }
    if made_by:
        described["made by"] = _run_facts(made_by[0])
        described["used"] = _used(home, made_by[0])
        described["parameters"] = dict(made_by[0].parameters)
    if len(made_by) > 1:
        described["made again by"] = [run.id for run in made_by[1:]]
    return described


def _whereabouts(home: Home, ref: ArtifactRef) -> str:
    """What became of bytes that are not where they belong, and what to do."""
    if home.store.is_trashed(ref.digest):
        return f"in the trash: bring them back with `mutoscope trash restore {ref}`"
    if home.catalog.artifacts.state(ref.digest) == "present":
        return "missing: `mutoscope fsck` says what to do"
    return "gone, by collection or loss: `mutoscope replay` or an import makes them again"


def describe_run(home: Home, run: RunRecord) -> dict[str, Any]:
    """A run's row with its edges and key parts."""
    outputs = home.catalog.runs.outputs(run.id)
    return {
        "run": _run_facts(run),
        "attempts": [_attempt(each) for each in home.catalog.runs.attempts(run.id)],
        "used": _used(home, run),
        "generated": {slot: str(ref) for slot, ref in outputs.items()},
        "parameters": dict(run.parameters),
        "warnings": list(run.warnings or ()),
        "timings": {name: render.seconds(value) for name, value in (run.timings or {}).items()},
        "key parts": dict(run.key_parts or {}),
        "error": dict(run.error or {}),
    }


def _attempt(attempt: AttemptRecord) -> str:
    """How an attempt that did not succeed ended, where, and after how long."""
    words = {"expired": "its worker went silent", "timed_out": "took too long", "released": "handed back"}
    how = words.get(attempt.outcome, attempt.outcome)
    after = render.seconds(attempt.ended_at - attempt.started_at)
    message = (attempt.error or {}).get("message")
    line = f"{attempt.attempt}: {how} after {after} on worker {attempt.worker}"
    return f"{line}: {message}" if message else line


def describe_workflow(home: Home, run: WorkflowRecord) -> dict[str, Any]:
    """A workflow run's row with the engine runs and workflows it asked for; unless it succeeded, with what
    those have made."""
    asked = home.catalog.calls.asked(run.id)
    inside = reversed(home.catalog.workflows.list(parent_id=run.id, limit=200))
    return {
        "workflow run": {
            "id": run.id,
            "workflow": run.workflow,
            "state": run.state,
            "created": render.clock(run.created_at),
            "finished": render.clock(run.finished_at),
            "attempt": run.attempt,
            "most attempts": run.max_attempts,
            "time limit": run.time_limit_seconds,
            "executed by": run.holder,
            "flow run": run.prefect_flow_run_id,
            "page": home.run_page_url(run) if run.finished_at is not None else None,
        },
        "parameters": dict(run.parameters),
        "outputs": dict(run.outputs or {}),
        "runs": {id_: _answered(home, id_, how) for id_, how in asked.items()},
        "inside": {each.id: f"{each.workflow} {each.state}" for each in inside},
        "made": _made(home, asked) if run.state != "succeeded" else {},
        "error": dict(run.error or {}),
    }


def _made(home: Home, run_ids: Iterable[str]) -> dict[str, str]:
    """What the runs of a workflow have made so far."""
    return {
        str(ref): f"{slot} of run {run_id}"
        for run_id in run_ids
        for slot, ref in home.catalog.runs.outputs(run_id).items()
    }


def _answered(home: Home, run_id: str, how: str) -> str:
    """A run that a workflow asked for: its card and state, and how it came about if it was not computed."""
    run = home.catalog.runs.get(run_id)
    shared = {"hit": ", from memo", "attached": ", shared with an earlier caller"}.get(how, "")
    return f"{run.card or run.kind} {run.state}{shared}"


def _run_facts(run: RunRecord) -> dict[str, Any]:
    return {
        "id": run.id,
        "kind": run.kind,
        "card": run.card,
        "state": run.state,
        "seed": run.seed,
        "attempt": run.attempt,
        "most attempts": run.max_attempts,
        "priority": run.priority,
        "time limit": run.time_limit_seconds,
        "worker": run.worker,
        "created": render.clock(run.created_at),
        "started": render.clock(run.started_at),
        "finished": render.clock(run.finished_at),
        "memo key": run.memo_key,
        "workflow run": run.workflow_run_id,
        "flow run": run.prefect_flow_run_id,
    }


def _used(home: Home, run: RunRecord) -> dict[str, str]:
    """What the run used: slots as references, weights by their version's name where they have one."""
    from mutoscope.platform.catalog.weights import name_for

    used = {slot: str(ref) for slot, ref in home.catalog.runs.inputs(run.id).items()}
    for component, digest in home.catalog.runs.weights(run.id).items():
        versions = home.catalog.weights.versions_of_digest(digest)
        used[f"weights:{component}"] = name_for(run.card, digest, versions)
    return used


def get(
    reference: Annotated[str, typer.Argument(help="Such as video:3fa9.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File or folder; - writes to stdout.")
    ] = None,
) -> None:
    """Write an artifact's bytes, verified, to a file (by default a name of its own here).

    Example: mutoscope get video:3fa9 -o clip.mp4
    """
    from mutoscope.platform.cli.home import Home

    home = Home()
    ref = home.catalog.artifacts.resolve(reference)
    if output is not None and str(output) == "-":
        typer.get_binary_stream("stdout").write(home.store.get(ref.digest))
        return
    render.say(str(save(home, ref, output or Path.cwd())))


def save(home: Home, ref: ArtifactRef, output: Path, name: str | None = None) -> Path:
    """Write an artifact to `output`; into it, under `name` or its own, if that is a folder. Returns the file.

    Raises:
        ArtifactMissing, ArtifactCorrupt: the bytes are gone or damaged; nothing is written.
        InvalidParameter: the place cannot be written.
    """
    from mutoscope.platform.errors import InvalidParameter

    path = output / (f"{name}{ref.extension}" if name else ref.file_name) if output.is_dir() else output
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        home.store.download(ref.digest, path)
    except OSError as error:
        raise InvalidParameter("output", str(path), f"name a writable place ({error.strerror})") from None
    return path


def open_page(reference: Annotated[str, typer.Argument(help="Such as video:3fa9.")]) -> None:
    """Open an artifact's page (media, facts, lineage) in the browser.

    Example: mutoscope open video:3fa9
    """
    from mutoscope.platform.cli.home import Home
    from mutoscope.platform.errors import ServerUnavailable

    home = Home()
    ref = home.catalog.artifacts.resolve(reference)
    url = home.artifact_url(ref.digest)
    if url is None:
        raise ServerUnavailable("no artifact gateway is running: start one with `mutoscope up`")
    render.say(url)
    typer.launch(url)
