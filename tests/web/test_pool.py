"""The pool at the gateway: a page for people, metrics for Prometheus."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from mutoscope.models.registry import cards
from mutoscope.platform.orchestration.runtime import Runtime
from mutoscope.platform.web.app import Gateway
from mutoscope.platform.web.metrics import PER_CARD
from tests.support.browser import PROGRAM, opened
from tests.support.deadline import until
from tests.support.platform import platform_in
from tests.support.small_pool import BETA, CARD, OTHER, fill


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Runtime]:
    with platform_in(tmp_path) as opened:
        fill(opened.catalog)
        yield opened


@pytest.fixture
def gateway(runtime: Runtime) -> Gateway:
    return Gateway(runtime.catalog, runtime.store)


@pytest.fixture
def client(gateway: Gateway) -> Iterator[TestClient]:
    with TestClient(gateway.app()) as opened:
        yield opened


def scraped(client: TestClient) -> dict[tuple[str, str], float]:
    """Values by metric and label, as Prometheus reads them."""
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    assert answer.headers["cache-control"] == "no-store"
    return {
        (sample.name, *sample.labels.values()): sample.value  # type: ignore[misc]
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def test_metrics_tell_depth_age_pace_and_what_is_wanted(client: TestClient) -> None:
    told = scraped(client)
    per_card = {name: told[name, CARD] for name, _ in PER_CARD.values()}
    oldest, seconds = (per_card.pop(f"mutoscope_{one}_seconds") for one in ("queue_oldest", "run"))
    assert oldest > 0
    assert seconds > 0
    assert per_card == {
        "mutoscope_queue_depth": 1,
        "mutoscope_runs_running": 1,
        "mutoscope_runs_succeeded_per_minute": 1,
        "mutoscope_runs_failed_per_minute": 0,
        "mutoscope_workers_serving": 1,
        "mutoscope_workers_wanted": 1,
        "mutoscope_queue_paused": 0,
        "mutoscope_runs_limit": 2,
    }
    assert (told["mutoscope_queue_paused", OTHER], told["mutoscope_queue_depth", OTHER]) == (1, 1)
    states = {state: told["mutoscope_workers", state] for state in ("starting", "ready", "draining")}
    assert states == {"starting": 0, "ready": 1, "draining": 1}


def test_a_card_that_nobody_asks_for_is_told_of_too(client: TestClient) -> None:
    told = scraped(client)
    assert {card for name, card in told if name == "mutoscope_queue_depth"} == set(cards())


def test_what_is_told_is_what_is_there_when_it_is_asked(client: TestClient, runtime: Runtime) -> None:
    before = scraped(client)
    runtime.catalog.queues.resume(OTHER)
    runtime.catalog.workers.mark_stopped(BETA)
    after = scraped(client)
    assert (before["mutoscope_queue_paused", OTHER], after["mutoscope_queue_paused", OTHER]) == (1, 0)
    assert after["mutoscope_workers", "draining"] == 0


def test_a_scraper_that_prefers_openmetrics_gets_it(client: TestClient) -> None:
    answer = client.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")


def test_an_empty_pool_has_a_page_and_metrics(tmp_path: Path) -> None:
    with platform_in(tmp_path) as empty, TestClient(Gateway(empty.catalog, empty.store).app()) as client:
        page = client.get("/pool").text
        assert scraped(client)["mutoscope_workers", "ready"] == 0
    assert "No worker lives" in page
    assert "nothing waits" in page


def test_the_page_says_who_works_what_waits_and_why(client: TestClient) -> None:
    page = client.get("/pool").text
    for words in ("alpha:11", "24.0 GiB of 80.0 GiB", f"<code>{CARD}@1</code>", "at most 2", "out of memory"):
        assert words in page
    assert "bad &lt;weights&gt;" in page, "what people wrote is shown, and never run"
    assert f"load {CARD}/vae@1" in page


@pytest.mark.skipif(PROGRAM is None, reason="no chromium on this machine: apt-get install chromium")
def test_the_page_in_a_browser(gateway: Gateway, runtime: Runtime) -> None:
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(gateway.app(), log_level="warning"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        with opened(f"http://127.0.0.1:{listening.getsockname()[1]}/pool", width=1200, height=700) as page:
            assert page.complaints == []
            assert page.evaluate("document.documentElement.scrollWidth") <= 1200
            assert page.evaluate("document.querySelector('meter').value / 2**30") == 24
            # It asks for itself again: what changed shows without a hand.
            runtime.catalog.queues.resume(OTHER)
            until(lambda: page.evaluate("!document.body.innerText.includes('paused')"), "a fresh page")
            assert page.complaints == []
    finally:
        server.should_exit = True
        thread.join()
        listening.close()
