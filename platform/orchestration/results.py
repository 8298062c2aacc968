"""What a workflow run shows in the Prefect UI when it has ended.

    result      the outputs, with thumbnails
    lineage     a table: each step, the card at its versions, what it used and made, computed or cached
    run-page    a link to the run's page in the store, which outlives Prefect's rows

A nested workflow shows its result; its steps are in the table of the outermost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from prefect.artifacts import Artifact, LinkArtifact, MarkdownArtifact, TableArtifact
from prefect.client.orchestration import get_client

from mutoscope.platform.orchestration.labels import card_label
from mutoscope.platform.orchestration.pictures import thumbnail
from mutoscope.platform.orchestration.runtime import Runtime
from mutoscope.platform.refs import ArtifactRef

if TYPE_CHECKING:
    from uuid import UUID

    from mutoscope.platform.orchestration.context import WorkflowContext
    from mutoscope.platform.orchestration.publish import Step

_HOW = {"new": "computed", "attached": "shared", "hit": "cached"}


async def publish_end(
    runtime: Runtime, context: WorkflowContext, outputs: Mapping[str, ArtifactRef] | None
) -> None:
    """Publish an execution's end. `outputs` is None where it did not succeed: what it made is shown all the
    same."""
    publications = context.publications
    artifacts: list[Artifact] = []
    if outputs:
        artifacts.append(
            MarkdownArtifact(
                key="result", description=_listed(outputs), markdown=_shown(runtime, context, outputs)
            )
        )
    if publications.outer is None:
        steps, more = publications.steps, publications.passed_over
        if steps:
            left_out = f"; the run's page has {more} more" if more else ""
            artifacts.append(
                TableArtifact(
                    key="lineage",
                    description=f"{len(steps)} steps, in the order in which they ended{left_out}",
                    table=await lineage_table(runtime, steps),
                )
            )
        artifacts.append(
            LinkArtifact(
                key="run-page",
                description="The run's page in the store",
                link=runtime.store.web_url(context.page),
                link_text="The whole run on one page",
            )
        )
    for artifact in artifacts:
        async with publications.turn:
            await artifact.acreate()


async def rename(flow_run_id: UUID, label: str) -> None:
    """Give a flow run another name: its seed was drawn after it had got its first."""
    async with get_client() as client:
        await client.update_flow_run(flow_run_id, name=label)


async def lineage_table(runtime: Runtime, steps: Sequence[Step]) -> list[dict[str, object]]:
    """A row for each step. What a step used is named as the step that made it named it."""
    names: dict[str, str] = {}
    rows: list[dict[str, object]] = []
    for step in steps:
        run, outputs = step.outcome.run, step.outcome.outputs
        names |= {ref.digest: str(ref) for ref in outputs.values()}
        inputs: Mapping[str, str] = (run.key_parts or {}).get("inputs", {})
        used = [f"{slot} {names.get(digest, digest[:12])}" for slot, digest in inputs.items()]
        rows.append(
            {
                "workflow": step.workflow,
                "card": await card_label(runtime, run),
                "seed": run.seed,
                "used": ", ".join(used),
                "made": ", ".join(map(str, outputs.values())),
                "how": _HOW[step.outcome.disposition],
                "run": run.id,
            }
        )
    return rows


def _listed(outputs: Mapping[str, ArtifactRef]) -> str:
    return ", ".join(map(str, outputs.values()))


def _shown(runtime: Runtime, context: WorkflowContext, outputs: Mapping[str, ArtifactRef]) -> str:
    parts = [f"### {name}\n\n{thumbnail(runtime, ref)}" for name, ref in outputs.items()]
    ask = f"`mutoscope lineage up {next(iter(outputs.values()))}`"
    page = runtime.store.web_url(context.page)
    return "\n\n".join([*parts, f"[The whole run on one page]({page}). Where it came from: {ask}."])
