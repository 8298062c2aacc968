"""A run's page shows what the run has to say although it succeeded; as text, whatever it holds."""

from __future__ import annotations

from pathlib import Path

from starlette.testclient import TestClient

from mutoscope.platform.web.app import Gateway
from tests.support.platform import platform_in
from tests.support.records import an_artifact, claim, queue


def test_warnings_stand_on_the_page_as_text(tmp_path: Path) -> None:
    with platform_in(tmp_path) as runtime:
        run = queue(runtime.catalog)
        claim(runtime.catalog)
        said = ['prompt "<script>": the last 16 tokens were cut', "a second line"]
        runtime.catalog.runs.succeed(run.id, "worker-a", {"image": an_artifact("image")}, warnings=said)
        with TestClient(Gateway(runtime.catalog, runtime.store).app()) as client:
            page = client.get(f"/runs/{run.id}").text
    assert "prompt &#34;&lt;script&gt;&#34;: the last 16 tokens were cut" in page
    assert "a second line" in page
    assert "<script>" not in page
