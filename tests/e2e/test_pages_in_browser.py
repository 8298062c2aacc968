"""Run pages as people see them: in a browser, from a local folder, from a bucket, and by presigned links."""

from __future__ import annotations

import functools
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from mutoscope.platform.artifacts import ArtifactStore, codecs
from mutoscope.platform.catalog import Catalog
from mutoscope.platform.custody.pages import Pages
from mutoscope.platform.refs import ArtifactRef
from tests.support.browser import PROGRAM, opened
from tests.support.servers import S3Server

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(PROGRAM is None, reason="no chromium on this machine: apt-get install chromium"),
]

PUBLIC = "public"


class PublicServer(S3Server):
    """One bucket of it may be read by anybody."""

    def __init__(self) -> None:
        super().__init__()
        path = self.folder / "identities.json"
        known = json.loads(path.read_text())
        known["identities"].append({"name": "anonymous", "actions": [f"Read:{PUBLIC}"]})
        path.write_text(json.dumps(known))


@pytest.fixture(scope="module")
def public_server() -> Iterator[PublicServer]:
    server = PublicServer()
    server.start()
    server.create_bucket(PUBLIC)
    server.create_bucket("private")
    yield server
    server.close()


@pytest.fixture
def bucket_environment(public_server: PublicServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in public_server.writer.environment(public_server.endpoint).items():
        monkeypatch.setenv(name, value)


def put(catalog: Catalog, store: ArtifactStore, kind: str, value: object, **meta: object) -> ArtifactRef:
    encoded = codecs.encode(kind, value, meta)
    ref = store.put(encoded.data, kind=kind, media_type=encoded.media_type, meta=encoded.meta)
    catalog.artifacts.record(ref)
    return ref


def make_run(catalog: Catalog, store: ArtifactStore) -> str:
    """A workflow run with a picture and a video, and its pages."""
    paint = np.random.default_rng(7)
    image = put(catalog, store, "image", paint.integers(0, 256, (32, 32, 3), dtype=np.uint8))
    video = put(catalog, store, "video", paint.integers(0, 256, (8, 32, 32, 3), dtype=np.uint8), fps=8)
    run_id = catalog.workflows.start("test.filmed", {"prompt": "<b>red & blue</b>", "seed": 7})
    used = catalog.runs.record_completed("import", generated={"image": image}, workflow_run_id=run_id)
    assert used
    catalog.runs.record_completed(
        "engine", card="tiny", used={"image": image}, generated={"video": video}, workflow_run_id=run_id
    )
    catalog.workflows.finish(run_id, "succeeded", outputs={"video": video, "image": image})
    Pages(catalog, store).write([run_id])
    return run_id


def look_at(url: str, *, pictures: int) -> None:
    """Everything that the page shows has arrived, and the browser has nothing to complain of."""
    with opened(url) as page:
        found = page.pictures()
        assert len(found) == pictures, found
        assert all(one["width"] >= 32 and not one["failed"] for one in found), found
        assert page.complaints == []
        assert page.evaluate("document.scripts.length") == 0
        assert page.evaluate("getComputedStyle(document.querySelector('main')).maxWidth") != "none"


# The run's page shows the video, the picture, a thumbnail of each step, and the picture in the lineage.
ON_PAGE, ON_INDEX = 5, 1


def test_from_a_local_folder(catalog: Catalog, store: ArtifactStore) -> None:
    run_id = make_run(catalog, store)
    url = Pages(catalog, store).url(catalog.workflows.get(run_id))
    assert url.startswith("file:///")
    look_at(url, pictures=ON_PAGE)
    day = url.rsplit("/", 3)[0]
    look_at(f"{day}/index.html", pictures=ON_INDEX)
    look_at(f"{day}/test.filmed/index.html", pictures=ON_INDEX)
    look_at(f"{day.rpartition('/')[0]}/index.html", pictures=0)


def test_from_any_static_server(catalog: Catalog, store: ArtifactStore) -> None:
    run_id = make_run(catalog, store)
    root = Path(store.root_url.removeprefix("file://"))
    handler = functools.partial(_Quiet, directory=str(root))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            path = Pages(catalog, store).url(catalog.workflows.get(run_id)).removeprefix(root.as_uri())
            look_at(f"http://127.0.0.1:{server.server_port}{path}", pictures=ON_PAGE)
        finally:
            server.shutdown()
            thread.join()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        return


def test_from_a_public_bucket(catalog: Catalog, bucket_environment: None) -> None:
    store = ArtifactStore.open(f"s3://{PUBLIC}/somewhere/below")
    run_id = make_run(catalog, store)
    url = Pages(catalog, store).url(catalog.workflows.get(run_id))
    assert url.startswith("http://127.0.0.1:")
    look_at(url, pictures=ON_PAGE)
    look_at(f"{url.rsplit('/', 3)[0]}/index.html", pictures=ON_INDEX)


def test_by_presigned_links_from_a_private_bucket(
    catalog: Catalog, bucket_environment: None, tmp_path: Path
) -> None:
    store = ArtifactStore.open("s3://private/store")
    run_id = make_run(catalog, store)
    record = catalog.workflows.get(run_id)
    with opened(Pages(catalog, store).url(record)) as page:
        assert "AccessDenied" in page.evaluate("document.documentElement.textContent")
    alone = tmp_path / "page.html"
    alone.write_bytes(Pages(catalog, store).presigned(record, 1))
    look_at(alone.as_uri(), pictures=ON_PAGE)
