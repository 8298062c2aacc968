"""verify_store: fails while a fault is left, and its artifact says which."""

from __future__ import annotations

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey
from prefect.client.schemas.sorting import ArtifactSort

from mutoscope.flows.maintenance.verify import verify_store
from mutoscope.platform.errors import ArtifactCorrupt
from mutoscope.platform.orchestration.runtime import Runtime
from tests.support.damage import flip, store_bytes

pytestmark = pytest.mark.usefixtures("prefect_server")


async def published() -> str:
    """The newest check's summary."""
    async with get_client() as client:
        found = await client.read_artifacts(
            artifact_filter=ArtifactFilter(key=ArtifactFilterKey(any_=["fsck"])),
            sort=ArtifactSort.CREATED_DESC,
        )
    return str(found[0].data)


async def test_a_fault_fails_the_flow_until_it_is_repaired(runtime: Runtime) -> None:
    assert await verify_store() == {}
    assert (await published()).startswith("**Clean.**")

    ref = store_bytes(runtime.store, "image")
    runtime.catalog.artifacts.record(ref)
    flip(runtime.store, ref.digest)
    assert await verify_store(deep=False) == {}, "a flipped bit needs reading"
    with pytest.raises(ArtifactCorrupt, match=r"^1 fault left in store and catalog, 1 damaged-bytes: look"):
        await verify_store()
    assert f"| fault | damaged-bytes | {ref} has other bytes" in await published()

    assert await verify_store(repair=True) == {"damaged-bytes": 1, "quarantined": 1}
    assert "moved to quarantine" in await published()
    assert await verify_store() == {"quarantined": 1}
    (row,) = {row.workflow for row in runtime.catalog.workflows.list()}
    assert row == "maintenance.verify_store"
