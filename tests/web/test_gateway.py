"""The gateway over HTTP semantics: bytes, ranges, caching, pages, and what it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from starlette.testclient import TestClient

from mutoscope.platform.artifacts import codecs
from mutoscope.platform.catalog import RunSpec
from mutoscope.platform.orchestration.runtime import Runtime
from mutoscope.platform.refs import ArtifactRef
from mutoscope.platform.web import content
from mutoscope.platform.web.app import Gateway
from tests.support.platform import platform_in
from tests.support.records import an_artifact

HTML = {"accept": "text/html"}
PROMPT = 'a <script>alert("x")</script> circle'


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Runtime]:
    with platform_in(tmp_path) as opened:
        yield opened


@pytest.fixture
def client(runtime: Runtime) -> Iterator[TestClient]:
    app = Gateway(runtime.catalog, runtime.store).app()
    with TestClient(app, follow_redirects=False) as opened:
        yield opened


def keep(runtime: Runtime, kind: str, value: object, **meta: object) -> ArtifactRef:
    encoded = codecs.encode(kind, value, meta)
    return runtime.store.put(encoded.data, kind=kind, media_type=encoded.media_type, meta=encoded.meta)


def an_image(runtime: Runtime, shade: int = 200) -> ArtifactRef:
    return keep(runtime, "image", np.full((8, 12, 3), shade, np.uint8))


def a_video(runtime: Runtime) -> ArtifactRef:
    frames = np.zeros((4, 16, 16, 3), np.uint8)
    frames[0] = (250, 10, 10)
    return keep(runtime, "video", frames, fps=8)


def an_engine_run(
    runtime: Runtime, card: str, inputs: dict[str, ArtifactRef], outputs: dict[str, ArtifactRef], seed: int
) -> str:
    """A succeeded engine run, as a worker leaves it behind."""
    workflow = runtime.catalog.workflows.start("test.make", {"prompt": PROMPT, "seed": seed})
    weights = runtime.store.put(b"weights of " + card.encode(), kind="weights", media_type="application/json")
    run = runtime.catalog.runs.record_completed("import", generated={"weights:net": weights})
    runtime.catalog.weights.publish_all(card, {"net": weights.digest}, run.id)
    spec = RunSpec(
        kind="engine",
        card=card,
        card_digest="0" * 64,
        contract="1" * 64,
        parameters={"prompt": PROMPT, "num_inference_steps": 3},
        seed=seed,
        inputs=inputs,
        weights={"net": weights.digest},
        key_parts={"card": card, "seed": seed},
        memo_key=f"{seed:064x}",
        workflow_run_id=workflow,
    )
    queued = runtime.catalog.runs.enqueue(spec, present=lambda ref: False).run
    (claimed,) = runtime.catalog.runs.claim("w" * 36, {card: "1" * 64}, 60.0, 1)
    assert claimed.id == queued.id
    runtime.catalog.runs.succeed(queued.id, "w" * 36, outputs, {"denoise": 0.5})
    runtime.catalog.workflows.finish(workflow, "succeeded", outputs=outputs)
    return queued.id


@pytest.fixture
def made(runtime: Runtime) -> dict[str, ArtifactRef]:
    """An image, and a video made from it."""
    image, video = an_image(runtime), a_video(runtime)
    an_engine_run(runtime, "flux-t2i", {}, {"image": image}, seed=1)
    an_engine_run(runtime, "wan-i2v", {"image": image}, {"video": video}, seed=2)
    return {"image": image, "video": video}


def test_bytes_come_with_type_tag_and_permission_to_keep_them(
    runtime: Runtime, client: TestClient, made: dict[str, ArtifactRef]
) -> None:
    for name, media_type, suffix in (("image", "image/png", "png"), ("video", "video/mp4", "mp4")):
        ref = made[name]
        answer = client.get(f"/artifacts/{ref.digest}")
        assert answer.status_code == 200
        assert answer.content == runtime.store.get(ref.digest)
        assert answer.headers["content-type"] == media_type
        assert answer.headers["etag"] == f'"{ref.digest}"'
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert answer.headers["accept-ranges"] == "bytes"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert (
            answer.headers["content-disposition"] == f'inline; filename="{name}-{ref.digest[:12]}.{suffix}"'
        )
        assert "sandbox" in answer.headers["content-security-policy"]


def test_what_a_browser_would_run_is_only_ever_downloaded(runtime: Runtime, client: TestClient) -> None:
    page = runtime.store.put(b"<script>1</script>", kind="blob", media_type="text/html")
    runtime.catalog.artifacts.record(page)
    answer = client.get(f"/artifacts/{page.digest}")
    assert answer.headers["content-disposition"].startswith("attachment;")
    assert "sandbox" in answer.headers["content-security-policy"]


@pytest.mark.parametrize("limit", [content.IN_MEMORY_BYTES, 10], ids=["in memory", "streamed"])
@pytest.mark.parametrize(
    ("asked", "start", "stop"),
    [
        ("bytes=0-", 0, 100),
        ("bytes=0-9", 0, 10),
        ("bytes=10-19", 10, 20),
        ("bytes=99-", 99, 100),
        ("bytes=90-1000", 90, 100),
        ("bytes=-7", 93, 100),
        ("bytes=-1000", 0, 100),
    ],
)
def test_ranges(
    runtime: Runtime,
    client: TestClient,
    monkeypatch: pytest.MonkeyPatch,
    limit: int,
    asked: str,
    start: int,
    stop: int,
) -> None:
    monkeypatch.setattr(content, "IN_MEMORY_BYTES", limit)
    data = bytes(range(100))
    ref = runtime.store.put(data, kind="blob", media_type="application/octet-stream")
    runtime.catalog.artifacts.record(ref)
    answer = client.get(f"/artifacts/{ref.digest}", headers={"range": asked})
    assert answer.status_code == 206
    assert answer.content == data[start:stop]
    assert answer.headers["content-range"] == f"bytes {start}-{stop - 1}/100"
    assert answer.headers["content-length"] == str(stop - start)


@pytest.mark.parametrize("asked", ["bytes=100-", "bytes=5-4", "bytes=-0"])
def test_ranges_that_do_not_exist(runtime: Runtime, client: TestClient, asked: str) -> None:
    ref = runtime.store.put(b"x" * 100, kind="blob", media_type="application/octet-stream")
    runtime.catalog.artifacts.record(ref)
    answer = client.get(f"/artifacts/{ref.digest}", headers={"range": asked})
    assert answer.status_code == 416
    assert answer.headers["content-range"] == "bytes */100"


@pytest.mark.parametrize("asked", ["bytes=0-1,3-4", "lines=1-2", "bytes=-", "bytes=a-b"])
def test_ranges_we_do_not_serve_give_the_whole(runtime: Runtime, client: TestClient, asked: str) -> None:
    ref = runtime.store.put(b"x" * 100, kind="blob", media_type="application/octet-stream")
    runtime.catalog.artifacts.record(ref)
    answer = client.get(f"/artifacts/{ref.digest}", headers={"range": asked})
    assert (answer.status_code, len(answer.content)) == (200, 100)


def test_conditional_requests(client: TestClient, made: dict[str, ArtifactRef]) -> None:
    ref = made["image"]
    url, tag = f"/artifacts/{ref.digest}", f'"{ref.digest}"'
    for held in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        answer = client.get(url, headers={"if-none-match": held})
        assert (answer.status_code, answer.content) == (304, b"")
        assert answer.headers["etag"] == tag
    assert client.get(url, headers={"if-none-match": '"other"'}).status_code == 200
    assert client.get(url, headers={"range": "bytes=0-0", "if-range": tag}).status_code == 206
    assert client.get(url, headers={"range": "bytes=0-0", "if-range": '"other"'}).status_code == 200


def test_head_tells_without_sending(client: TestClient, made: dict[str, ArtifactRef]) -> None:
    answer = client.head(f"/artifacts/{made['video'].digest}")
    assert answer.content == b""
    assert answer.headers["content-length"] == str(made["video"].size)


def test_damaged_and_missing_bytes_are_never_served(
    runtime: Runtime, client: TestClient, made: dict[str, ArtifactRef]
) -> None:
    path = runtime.store.local_path(made["image"].digest)
    assert path is not None
    data = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    answer = client.get(f"/artifacts/{made['image'].digest}")
    assert answer.status_code == 500
    assert made["image"].digest[:12] in answer.json()["error"]
    path.unlink()
    assert client.get(f"/artifacts/{made['image'].digest}").status_code == 410


def test_a_videos_poster_is_its_first_frame(client: TestClient, made: dict[str, ArtifactRef]) -> None:
    url = f"/artifacts/{made['video'].digest}/poster"
    answer = client.get(url)
    assert answer.headers["content-type"] == "image/png"
    pixels = codecs.decode("image", answer.content, "image/png")
    assert pixels.shape == (16, 16, 3)
    assert np.abs(pixels.astype(int) - (250, 10, 10)).max() < 12  # H.264 is lossy
    assert client.get(url, headers={"if-none-match": answer.headers["etag"]}).status_code == 304
    image = client.get(f"/artifacts/{made['image'].digest}/poster")
    assert image.headers["location"] == f"/artifacts/{made['image'].digest}"


def test_a_prefix_leads_to_the_page(client: TestClient, made: dict[str, ArtifactRef]) -> None:
    for name in (str(made["video"]), made["video"].digest[:8]):
        answer = client.get(f"/artifacts/{name}/page")
        assert (answer.status_code, answer.headers["location"]) == (
            307,
            f"/artifacts/{made['video'].digest}/page",
        )
    search = client.get("/", params={"q": str(made["video"])})
    assert search.headers["location"] == f"/artifacts/{made['video'].digest}/page"


def test_the_page_shows_the_medium_its_parameters_and_where_it_comes_from(
    client: TestClient, made: dict[str, ArtifactRef]
) -> None:
    html = client.get(f"/artifacts/{made['video'].digest}/page", headers=HTML).text
    assert f'<video src="/artifacts/{made["video"].digest}"' in html
    assert "num_inference_steps" in html
    tree = html[html.index('<ul class="tree">') :]
    positions = [
        tree.index(text)
        for text in (str(made["video"]), "wan-i2v run", str(made["image"]), "flux-t2i run", "flux-t2i/net@1")
    ]
    assert positions == sorted(positions)
    assert "wan-i2v/net@1" in tree


def test_an_artifacts_page_shows_what_was_made_from_it(
    runtime: Runtime, client: TestClient, made: dict[str, ArtifactRef]
) -> None:
    video_link = f'href="/artifacts/{made["video"].digest}/page"'
    assert video_link in client.get(f"/artifacts/{made['image'].digest}/page").text
    weights = runtime.catalog.weights.get("wan-i2v/net@1")
    page = client.get(f"/artifacts/{weights.digest}/page").text
    assert video_link in page
    assert made["image"].digest not in page  # another card's weights made it


def test_an_artifacts_page_names_its_weights_and_what_came_of_it(
    runtime: Runtime, client: TestClient, made: dict[str, ArtifactRef]
) -> None:
    film = client.get(f"/artifacts/{made['video'].digest}/page").text
    about = film[: film.index("<h2>Lineage</h2>")]
    for name in ("flux-t2i/net@1", "wan-i2v/net@1"):  # through the picture too
        digest = runtime.catalog.weights.get(name).digest
        assert f'<a href="/artifacts/{digest}/page">{name}</a>' in about
    assert "came of it" not in film
    picture = f"/artifacts/{made['image'].digest}/page"
    assert "<p>1 artifact, by 1 run, came of it." in client.get(picture).text
    scores = {f"reward.{n}": an_artifact(f"{n}", "reward") for n in range(2_001)}
    runtime.catalog.runs.record_completed("score", used={"image": made["image"]}, generated=scores)
    assert "more than 2,000 runs and artifacts came of it" in client.get(picture).text


def test_a_runs_page_names_its_weights_as_its_card_does(
    runtime: Runtime, client: TestClient, made: dict[str, ArtifactRef]
) -> None:
    catalog = runtime.catalog
    (run,) = catalog.runs.generated_by(made["image"].digest)
    shared = catalog.weights.get("flux-t2i/net@1")
    catalog.weights.publish_all("another-card", {"net": shared.digest}, shared.produced_by_run)
    page = client.get(f"/runs/{run.id}").text
    assert f'<a href="/artifacts/{shared.digest}/page"><code>flux-t2i/net@1</code></a>' in page
    assert "another-card" not in page


def test_every_page_answers_and_escapes_what_people_typed(
    runtime: Runtime, client: TestClient, made: dict[str, ArtifactRef]
) -> None:
    run = runtime.catalog.runs.list(kind="engine")[0]
    workflow = runtime.catalog.workflows.list()[0]
    paths = [
        "/",
        *(f"/artifacts/{ref.digest}/page" for ref in made.values()),
        f"/runs/{run.id}",
        f"/workflows/{workflow.id}",
    ]
    for path in paths:
        answer = client.get(path, headers=HTML)
        assert answer.status_code == 200, path
        assert "&lt;script&gt;alert" in answer.text
        assert "<script" not in answer.text
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")
        assert answer.headers["cache-control"] == "no-cache"


def test_pages_of_every_kind_of_artifact(runtime: Runtime, client: TestClient) -> None:
    made = [
        keep(runtime, "text", "words <b>"),
        keep(runtime, "json", {"a": [1]}),
        keep(runtime, "latent", np.zeros((2, 2), np.float32)),
        keep(runtime, "blob", b"bytes"),
    ]
    for ref in made:
        runtime.catalog.artifacts.record(ref)
        assert client.get(f"/artifacts/{ref.digest}/page", headers=HTML).status_code == 200
    assert "words &lt;b&gt;" in client.get(f"/artifacts/{made[0].digest}/page").text


def test_an_empty_home_says_how_to_begin(client: TestClient) -> None:
    html = client.get("/", headers=HTML).text
    assert "Nothing was made yet" in html


def test_unknown_names_are_404_in_the_form_asked_for(
    client: TestClient, made: dict[str, ArtifactRef]
) -> None:
    for path in (
        "/artifacts/video:ffff",
        "/artifacts/nonsense!/page",
        "/runs/ffff",
        "/workflows/ffff",
        "/nowhere",
    ):
        assert client.get(path).status_code == 404, path
    assert "no artifact is named" in client.get("/artifacts/video:ffff").json()["error"]
    page = client.get("/artifacts/video:ffff/page", headers=HTML)
    assert page.status_code == 404
    assert "no artifact is named" in page.text


def test_only_reading(client: TestClient, made: dict[str, ArtifactRef]) -> None:
    assert client.post(f"/artifacts/{made['image'].digest}").status_code == 405
    assert client.get("/health").json() == {"status": "ok"}
