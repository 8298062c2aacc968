"""The collecting flow against a Prefect server: what it does, and the summary it leaves."""

from __future__ import annotations

from pathlib import Path

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey

from mutoscope.flows.maintenance.collect import collect_garbage
from mutoscope.platform.errors import InvalidParameter
from tests.support.collecting import DAY, Holdings
from tests.support.platform import platform_in

pytestmark = pytest.mark.usefixtures("prefect_server")


async def summaries() -> list[str]:
    async with get_client() as client:
        chosen = ArtifactFilter(key=ArtifactFilterKey(any_=["collection"]))
        return [str(artifact.data) for artifact in await client.read_artifacts(artifact_filter=chosen)]


async def test_it_collects_and_says_what(tmp_path: Path) -> None:
    with platform_in(tmp_path) as runtime:
        held = Holdings(runtime.catalog, runtime.store)
        held.catalog.retention.add("latents", DAY, kind="latent")
        old, new = held.make("old", age=2 * DAY), held.make("new")

        looked = await collect_garbage(dry_run=True)
        assert looked == {"collected": 1, "collected_bytes": old.size}
        assert held.states(old, new) == ["present", "present"]

        counts = await collect_garbage(grace="12h")
        assert (counts["collected"], counts["removed"]) == (1, 0)
        assert held.states(old, new) == ["tombstone, in the trash", "present"]
        asked = [row.parameters for row in held.catalog.workflows.list()]
        assert asked == [{"dry_run": False, "grace": "12h"}, {"dry_run": True, "grace": "7d"}]

        shown = await summaries()
        assert any(f"| latent | 1 | {old.size} B | 0 |" in text for text in shown)
        assert any("| moved to the trash | 1 |" in text and "for 12 h" in text for text in shown)
        with pytest.raises(InvalidParameter, match="grace='a while'"):
            await collect_garbage(grace="a while")
