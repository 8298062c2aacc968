"""What a training shows in the Prefect UI while it goes on. Nothing depends on whether it arrives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prefect.artifacts import Artifact, ImageArtifact, MarkdownArtifact

from mutoscope.platform.orchestration.context import current_workflow
from mutoscope.platform.orchestration.pictures import linked, picture_url
from mutoscope.platform.orchestration.runtime import get_runtime
from mutoscope.platform.refs import ArtifactRef
from mutoscope.platform.wording import markdown_table

LAST = 20
"""Iterations that the table tells of."""


def show_picture(key: str, ref: ArtifactRef, words: str) -> None:
    """Show a picture on the flow run's page, where a later one of the same key follows it."""
    runtime = get_runtime()
    url = picture_url(runtime, ref)
    if url is not None:
        _publish(ImageArtifact(key=key, description=f"{words}: {linked(runtime, ref)}", image_url=url))


def show_table(key: str, title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Show the last rows of a table on the flow run's page."""
    told = [[_told(cell) for cell in row] for row in rows[-LAST:]]
    _publish(
        MarkdownArtifact(
            key=key, description=title, markdown=f"### {title}\n\n{markdown_table(columns, told)}"
        )
    )


def _publish(artifact: Artifact) -> None:
    context = current_workflow.get()
    if context is None:
        return
    publications = context.publications

    async def publish() -> None:
        async with publications.turn:
            await artifact.acreate()

    publications.spawn(publish())


def _told(cell: Any) -> Any:
    if isinstance(cell, float):
        return f"{cell:.4g}"
    return "" if cell is None else cell
