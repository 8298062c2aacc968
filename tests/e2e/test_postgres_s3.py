"""The whole stack on Postgres and S3: the same commands, and nothing of either left in the home."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mutoscope.platform.artifacts import ArtifactStore
from tests.e2e.stack import Stack
from tests.support.servers import Databases

pytestmark = [pytest.mark.e2e, pytest.mark.long]

PASSWORD = "hush"


@pytest.fixture
def remote_stack(tmp_path: Path, databases: Databases, s3_bucket: str) -> Iterator[Stack]:
    """A stack on an empty database and bucket. The server trusts loopback, so any password will do."""
    url = databases.create().replace("postgres@", f"postgres:{PASSWORD}@")
    stack = Stack(
        tmp_path / "home", {"MUTOSCOPE_DATABASE_URL": url, "MUTOSCOPE_STORE_URL": f"{s3_bucket}/mutoscope"}
    )
    stack.start()
    yield stack
    stack.stop()
    stack.catalog.close()


def test_a_picture_with_its_lineage(remote_stack: Stack, tmp_path: Path) -> None:
    stack = remote_stack
    made, again = (
        stack.run(
            "run", "text_to_image", "prompt=a red circle", "seed=7", "--json", "--output", str(tmp_path)
        )
        for _ in range(2)
    )
    image = made.json["outputs"]["image"]
    assert again.json["outputs"]["image"]["digest"] == image["digest"]
    assert stack.run_count() == 1, "the second is answered by the memo"

    tree, listed, status = stack.run_all(
        [["lineage", "up", f"image:{image['digest'][:12]}"], ["ls", "--json"], ["catalog", "status"]]
    )
    for needed in ("flux-t2i run", "flux-t2i/transformer@1", "flux-t2i import"):
        assert needed in tree.out
    assert image["digest"] in listed.out
    assert "postgres:***@" in status.out
    assert stack.store.get(image["digest"]) == (tmp_path / "image.png").read_bytes()
    assert isinstance(stack.store, ArtifactStore)
    assert not (stack.home / "catalog.db").exists()
    assert not (stack.home / "store").exists()
    for result in (made, again, tree, listed, status):
        assert PASSWORD not in result.out + result.err
    assert PASSWORD not in "".join(log.read_text() for log in (stack.home / "logs").glob("*.log"))
