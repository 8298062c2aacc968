"""What `mutoscope why` and `mutoscope incidents` say, whole: ids, digests and ages starred out."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mutoscope.platform.catalog import RunRecord
from mutoscope.platform.custody.fsck import fsck
from mutoscope.platform.engine import numerics
from mutoscope.platform.errors import RunFailed
from mutoscope.platform.orchestration import plan
from mutoscope.platform.orchestration.plan import Origin
from mutoscope.platform.orchestration.replay import replay_run
from mutoscope.platform.orchestration.runtime import Runtime
from mutoscope.platform.orchestration.submit import Outcome, submit_run
from mutoscope.platform.refs import ArtifactRef
from tests.cli.conftest import Command, home, mutoscope  # noqa: F401
from tests.orchestration.conftest import RECIPE
from tests.support.damage import remove
from tests.support.fake_worker import CONTRACT, FakeWorker, paint, publish_weights
from tests.support.platform import cards_registered, platform_in
from tests.support.text import assert_text
from tests.support.tinycard.card import CARD


@pytest.fixture
def runtime(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runtime]:  # noqa: F811
    home.mkdir()
    with cards_registered(monkeypatch, "tests.support.tinycard.card:CARD"), platform_in(home) as opened:
        publish_weights(opened, CARD, RECIPE)
        yield opened


@pytest.fixture
def worker(runtime: Runtime) -> Iterator[FakeWorker]:
    with FakeWorker(runtime, (CARD.id,)).serving() as serving:
        yield serving


def make(seed: int = 7, workflow_run_id: str | None = None, **given: Any) -> Outcome:
    return asyncio.run(submit_run(CARD.id, seed=seed, origin=Origin(workflow_run_id), **given))


def told(command: Command, *arguments: str) -> str:
    result = command(*arguments)
    assert result.err == ""
    words = re.sub(r"[\d.]+ (s|min|h|d) ago", "* ago", result.out)
    return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \w+", "* o'clock", words)


def test_a_first_run_and_whom_it_served(runtime: Runtime, worker: FakeWorker, mutoscope: Command) -> None:  # noqa: F811
    workflow = runtime.catalog.workflows.start("image.tiny", {})
    made = make()
    assert make(workflow_run_id=workflow).disposition == "hit"
    assert_text(
        told(mutoscope, "why", str(made.outputs["image"])),
        """
        tiny-test run ***: succeeded, made image:***, latent:***
        asked for 2 times
          new       directly  * ago
          hit       image.tiny ***  * ago
        computed because tiny-test had no earlier success
        an equal call now: a hit
        """,
    )


def test_a_miss_field_by_field(
    runtime: Runtime,
    worker: FakeWorker,
    mutoscope: Command,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = "a gate that is named at such length that nobody would read all of it:"
    make(num_inference_steps=2)
    make(num_inference_steps=4, gate=f"{gate} one")
    # Other weights, another release of a library, and other code.
    publish_weights(runtime, CARD, RECIPE, salt="trained on")
    newer = {**CONTRACT, "versions": {"torch": "2.14.0"}}
    monkeypatch.setattr(numerics, "card_digest", lambda card: "c" * 64)
    monkeypatch.setattr(plan.numerics, "card_digest", lambda card: "c" * 64)
    runtime.catalog.workers.mark_stopped(worker.id)
    with FakeWorker(runtime, (CARD.id,), contract=newer).serving():
        made = make(seed=8, num_inference_steps=4, gate=f"{gate} two")
    assert_text(
        told(mutoscope, "why", made.run.id[:23]),
        """
        tiny-test run ***: succeeded, made image:***, latent:***
        asked for once
          new       directly  * ago
        computed because no earlier success has its key
        nearest of 2 earlier: tiny-test run ***; 5 of 16 key fields differ
          code                    ***  →  ***
          weights.net             tiny-test/net@1  →  tiny-test/net@2
          parameters.gate         … all of it: one  →  … all of it: two
          seed                    7  →  8
          numeric.versions.torch  -  →  2.14.0
        an equal call now: a hit
        """,
    )


def test_an_input_that_differs_leads_on(
    runtime: Runtime,
    worker: FakeWorker,
    mutoscope: Command,  # noqa: F811
) -> None:
    first, second = make(seed=1), make(seed=2)
    make(image=first.outputs["image"])
    made = make(image=second.outputs["image"])
    assert_text(
        told(mutoscope, "why", made.run.id),
        """
        tiny-test run ***: succeeded, made image:***, latent:***
        asked for once
          new       directly  * ago
        computed because no earlier success has its key
        nearest of 3 earlier: tiny-test run ***; 1 of 16 key fields differs
          inputs.image  image:***  →  image:***
          what made the inputs differ: `mutoscope diff image:*** image:***`
        an equal call now: a hit
        """,
    )
    explained = json.loads(mutoscope("why", made.run.id, "--json").out)
    assert explained["nearest"]["differences"] == [
        {
            "field": "inputs.image",
            "left": str(first.outputs["image"]),
            "right": str(second.outputs["image"]),
        }
    ]
    assert (explained["reason"], explained["would_hit"]) == ("unlike", True)


def test_bytes_that_were_gone_and_a_failure_before(
    runtime: Runtime,
    mutoscope: Command,  # noqa: F811
) -> None:
    def breaks_once(runtime: Runtime, run: RunRecord) -> dict[str, ArtifactRef]:
        if not runtime.catalog.runs.list(state="failed"):
            raise RuntimeError("out of luck")
        return paint(runtime, run)

    with FakeWorker(runtime, (CARD.id,), breaks_once).serving():
        with pytest.raises(RunFailed, match="out of luck"):
            make()
        (failed,) = runtime.catalog.runs.list(state="failed")
        first = make()
        remove(runtime.store, first.outputs["image"].digest)
        second = make()
    assert second.disposition == "new"
    assert_text(
        told(mutoscope, "why", second.run.id),
        """
        tiny-test run ***: succeeded, made image:***, latent:***
        asked for once
          new       directly  * ago
        computed because bytes of the equal run *** were not in the store then: ***
          1 equal run before it ended without outputs; such never answer
        an equal call now: a hit
        """,
    )
    assert_text(
        told(mutoscope, "why", failed.id),
        """
        tiny-test run ***: failed
        asked for once
          new       directly  * ago
        computed because tiny-test had no earlier success
        an equal call now: computed, a failed run never answers
        """,
    )
    remove(runtime.store, first.outputs["latent"].digest)
    assert "an equal call now: computed again, the store lacks latent:" in told(
        mutoscope, "why", first.run.id
    )


def test_the_calls_of_a_workflow(runtime: Runtime, worker: FakeWorker, mutoscope: Command) -> None:  # noqa: F811
    workflow = runtime.catalog.workflows.start("image.tiny", {})
    make(seed=1)
    for seed in (1, 2):
        make(seed=seed, workflow_run_id=workflow)
    runtime.catalog.workflows.finish(workflow, "succeeded")
    assert_text(
        re.sub(r"-{2,}| {3,}", "   ", told(mutoscope, "why", workflow)),
        """
        image.tiny ***: succeeded
        ANSWER  CARD   RUN   WHY
        hit   tiny-test  ***  an equal run had succeeded
        new   tiny-test  ***  differs from *** in seed
        """,
    )


def test_a_replay_with_other_bytes_is_an_incident(runtime: Runtime, mutoscope: Command) -> None:  # noqa: F811
    def perform(runtime: Runtime, run: RunRecord) -> dict[str, ArtifactRef]:
        outputs = paint(runtime, run)
        if worker.done:
            outputs["image"] = runtime.store.put(b"other", kind="image", media_type="image/png")
        return outputs

    with FakeWorker(runtime, (CARD.id,), perform).serving() as worker:
        made = make()
        replayed = asyncio.run(replay_run(made.run.id, runtime=runtime))
    assert_text(
        told(mutoscope, "why", replayed.run.id),
        """
        tiny-test run ***: succeeded, made image:***, latent:***
        asked for once
          new       directly  * ago
        computed because it was to be made anew: a replay of ***
        it made other bytes than the equal run before it: `mutoscope incidents show ***`
        an equal call now: a hit
        """,
    )
    assert_text(
        re.sub(r" {3,}", "   ", told(mutoscope, "incidents", "list")),
        """
        INCIDENT   KIND   AGE   ABOUT
        ***  determinism  * ago  tiny-test: image of ***, unlike ***
        """,
    )
    (incident,) = runtime.catalog.incidents.list()
    assert_text(
        told(mutoscope, "incidents", "show", incident.id),
        """
        determinism incident ***, * o'clock
        earlier  tiny-test run ***, worker ***, * o'clock
        now      tiny-test run ***, worker ***, * o'clock
          image: image:*** earlier, image:*** now
        one key, ***, of
          weights    net=*** recipe=***
          parameters num_inference_steps=3 gate=None gate_step=0 trouble=None trouble_step=0
          seed       7
          profile    serve
          numeric    device=fake dtype=float32 mode=bitwise threads=1 versions=
        what to do
          `mutoscope replay ***` tells which of the two comes again
          the memo keeps answering with the earlier one; neither is overwritten
          if both come now and then, the card is not deterministic: its contract promises that it is
        """,
    )


def test_lost_bytes_are_an_incident(runtime: Runtime, worker: FakeWorker, mutoscope: Command) -> None:  # noqa: F811
    made = make()
    remove(runtime.store, made.outputs["image"].digest)
    list(fsck(runtime.catalog, runtime.store, repair=True))
    assert re.search(r"loss .* image:[0-9a-f]{12}\n", told(mutoscope, "incidents", "list", "--kind", "loss"))
    assert told(mutoscope, "incidents", "list", "--kind", "damage") == "no damage incident is on record\n"
    (incident,) = runtime.catalog.incidents.list()
    assert_text(
        told(mutoscope, "incidents", "show", incident.id),
        """
        loss incident ***, * o'clock
        image:*** had no bytes in the store; its bytes are still gone
        made by  tiny-test run ***
        what to do
          `mutoscope replay ***` makes it again
        """,
    )
    assert make().disposition == "new"
    assert "it has been made again since" in told(mutoscope, "incidents", "show", incident.id)
