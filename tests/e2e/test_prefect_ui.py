"""The Prefect UI in a browser: launch from the form, watch, decide, cancel, schedule; on a guarded server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import AUTH
from tests.e2e.stack import PATIENCE_S, Stack
from tests.support.browser import PROGRAM, opened
from tests.support.deadline import until
from tests.support.prefect_ui import PrefectUi

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(PROGRAM is None, reason="no chromium on this machine: apt-get install chromium"),
]

PICTURES = os.environ.get("MUTOSCOPE_SCREENSHOTS")
"""A folder for screenshots to look at; none are taken without."""
WIDTH, HEIGHT = 1300, 1250


@pytest.fixture(scope="module")
def ui(stack: Stack) -> Iterator[PrefectUi]:
    """The UI, after the login that a guarded server asks for."""
    with opened(stack.record.prefect_ui_url, width=WIDTH, height=HEIGHT) as page:
        signed_in = PrefectUi(page, stack.record.prefect_ui_url)
        signed_in.log_in(AUTH)
        yield signed_in


def snap(ui: PrefectUi, name: str) -> None:
    if PICTURES:
        ui.page.screenshot(Path(PICTURES) / f"prefect-{name}.png", width=WIDTH, height=HEIGHT)


def deployment(stack: Stack, name: str) -> str:
    return str(stack.api(f"/deployments/name/{name}/{name}")["id"])


def launched(stack: Stack, deployment_id: str, known: set[str]) -> str:
    """The flow run that a form has just started."""

    def look() -> str | None:
        query = {"deployments": {"id": {"any_": [deployment_id]}}, "limit": 50}
        return next(
            (run["id"] for run in stack.api("/flow_runs/filter", query) if run["id"] not in known), None
        )

    return until(look, "the form starts a flow run", seconds=PATIENCE_S, every=0.3)


def started(stack: Stack, name: str, ui: PrefectUi, fields: dict[str, str], *, ask: bool = False) -> str:
    """Fill the form of a workflow, submit it, and return the flow run's id."""
    chosen = deployment(stack, name)
    query = {"deployments": {"id": {"any_": [chosen]}}, "limit": 200}
    known = {run["id"] for run in stack.api("/flow_runs/filter", query)}
    ui.go(f"/deployments/deployment/{chosen}/run")
    for label, text in fields.items():
        ui.fill(label, text)
    if ask:
        ui.tick("Ask before the video")
    snap(ui, f"form-{name}")
    ui.submit("Submit")
    return launched(stack, chosen, known)


def state(stack: Stack, flow_run_id: str, wanted: str) -> Any:
    """The flow run, once its state goes by that name."""

    def look() -> Any:
        found = stack.flow_run(flow_run_id)
        if found["state_name"] in {"Failed", "Crashed", "Cancelled", "Completed"} - {wanted}:
            raise AssertionError(f"it ended as {found['state']}{stack.logs()}")
        return found if found["state_name"] == wanted else None

    return until(look, f"flow run {flow_run_id} to be {wanted}", seconds=PATIENCE_S, every=0.3)


def test_a_video_launched_from_the_form_waits_for_a_person_and_is_made(stack: Stack, ui: PrefectUi) -> None:
    fields = {"Prompt": "a red circle left of a blue square", "Seed": "131"}
    flow_run_id = started(stack, "text_to_video", ui, fields, ask=True)
    asleep = state(stack, flow_run_id, "Suspended")
    assert asleep["name"] == "a red circle left of a blue square · seed 131"
    row = stack.catalog.workflows.find_by_flow_run(flow_run_id)
    assert row is not None
    (asked,) = stack.catalog.approvals.list()
    assert (asked.workflow_run_id, asked.question) == (row.id, "Make the video from this picture?")
    runs_before = stack.run_count()

    ui.go(f"/runs/flow-run/{flow_run_id}")
    ui.press("Resume")
    ui.read("Make the video from this picture?")
    ui.fill("Your name", "ada")
    ui.fill("Note", "the circle is red")
    snap(ui, "approval")
    ui.press_in_dialog("Submit")
    state(stack, flow_run_id, "Completed")
    ended = stack.catalog.workflows.get(row.id)
    assert ended.holder != row.holder, "its process was freed, and another one went on"
    (decided,) = stack.catalog.approvals.of_run(row.id)
    assert (decided.approved, decided.decided_by, decided.note) == (True, "ada", "the circle is red")
    assert ended.state == "succeeded"
    assert stack.run_count() == runs_before + 1, "the picture was not made again"
    assert [(run["name"], run["state_name"]) for run in stack.task_runs(flow_run_id)] == [
        ("flux-t2i@1 · seed 131", "Completed"),
        ("flux-t2i@1 · seed 131", "Cached"),
        ("wan-i2v@1 · seed 131", "Completed"),
    ]

    ui.go(f"/runs/flow-run/{flow_run_id}")
    ui.read("Subflow Runs")
    ui.press("Artifacts")
    ui.read("lineage")
    ui.read("run-page")
    snap(ui, "artifacts")
    assert all(not picture["failed"] for picture in ui.page.pictures())


def test_cancelling_a_long_run_on_its_page_reaches_the_worker(stack: Stack, ui: PrefectUi) -> None:
    fields = {"Prompt": "a green square", "Seed": "132", "Steps": "900"}
    flow_run_id = started(stack, "text_to_image", ui, fields)

    def at_work() -> Any:
        found = stack.catalog.runs.list(card="flux-t2i", state="running", limit=10)
        return next((run for run in found if run.seed == 132 and run.step), None)

    run = until(at_work, "the run is at work", seconds=PATIENCE_S, every=0.2)
    ui.go(f"/runs/flow-run/{flow_run_id}")
    ui.read("Running")
    snap(ui, "running")
    ui.press("Cancel")
    ui.read("Cancel Flow Run")
    snap(ui, "cancel")
    ui.press_in_dialog("Confirm")
    assert stack.finished(run.id).state == "cancelled"
    state(stack, flow_run_id, "Cancelled")
    row = stack.catalog.workflows.find_by_flow_run(flow_run_id)
    assert row is not None
    assert row.state == "cancelled"


def test_a_schedule_made_on_the_page_survives_a_deployment(stack: Stack, ui: PrefectUi) -> None:
    added = stack.run("schedule", "add", "verify_store", "deep=false", "--cron", "0 3 * * *", "--json")
    assert added.json["name"] == "cron-0-3-any-any-any"
    chosen = deployment(stack, "verify_store")
    ui.go(f"/deployments/deployment/{chosen}")
    ui.read("cron-0-3-any-any-any")
    ui.press("Schedule")
    ui.press_in_dialog("Interval")
    ui.press_in_dialog("Save")
    until(
        lambda: len(stack.api(f"/deployments/{chosen}")["schedules"]) == 2,
        "the page adds a schedule",
        seconds=PATIENCE_S,
        every=0.3,
    )
    snap(ui, "schedule")
    listed = {row["name"]: row for row in stack.run("schedule", "ls", "verify_store", "--json").json}
    assert len(listed) == 2
    assert listed["cron-0-3-any-any-any"]["parameters"] == {"deep": False}
    for name in listed:
        assert stack.run("schedule", "rm", "verify_store", name).code == 0
    refused = stack.run("schedule", "add", "verify_store", "--cron", "0 25 * * *")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.startswith("error: cron='0 25 * * *' is not valid: its hour '25' cannot be read")


def test_somebody_else_gets_one_clear_line(stack: Stack) -> None:
    stranger = Stack(stack.home, {"MUTOSCOPE_PREFECT_AUTH": "eve:guess"})
    refused = stranger.run("run", "text_to_image", "prompt=x")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err == (
        f"error: the Prefect server at {stack.record.prefect_api_url} does not know these credentials: "
        "set MUTOSCOPE_PREFECT_AUTH=user:password as the server has it\n"
    )
