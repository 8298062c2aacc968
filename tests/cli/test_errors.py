"""How a command ends when something is wrong: one line, and an exit code that tells whose fault it is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mutoscope.platform.catalog import Catalog
from mutoscope.platform.orchestration import stack
from tests.cli.conftest import Command
from tests.cli.test_stack_record import RECORD


def test_running_without_a_stack(home: Path, mutoscope: Command) -> None:
    result = mutoscope("run", "text_to_video", "prompt=x")
    assert (result.code, result.out) == (2, "")
    assert result.err == f"error: no stack is running on {home}: start one with `mutoscope up`\n"


def test_running_when_the_recorded_server_is_dead(home: Path, mutoscope: Command) -> None:
    api = "http://127.0.0.1:1/api"  # nobody listens on port 1
    fields = {name: getattr(RECORD, name) for name in RECORD.__slots__}
    stack.write_record(home, stack.StackRecord(**{**fields, "prefect_api_url": api}))
    result = mutoscope("run", "text_to_video", "prompt=x")
    assert (result.code, result.err) == (
        2,
        f"error: no Prefect server answers at {api}: start one with `mutoscope up`\n",
    )


def test_looking_at_a_home_that_was_never_up(home: Path, mutoscope: Command) -> None:
    result = mutoscope("ls")
    assert (result.code, result.err) == (
        1,
        f"error: {home} holds no catalog: create it with `mutoscope up`\n",
    )


def test_a_kind_of_incident_that_there_is_not(catalog: Catalog, mutoscope: Command) -> None:
    refused = mutoscope("incidents", "list", "--kind", "fire")
    assert (refused.code, refused.out) == (2, "")
    assert "'loss'" in refused.err
    assert mutoscope("incidents", "list", "--kind", "loss").out == "no loss incident is on record\n"


def test_malformed_arguments(home: Path, mutoscope: Command) -> None:
    result = mutoscope("run", "text_to_video", "a red circle")
    assert result.code == 2
    assert result.err.startswith("error: argument='a red circle' is not valid: write key=value")


def test_a_setting_that_cannot_be_used(home: Path, mutoscope: Command) -> None:
    os.environ["MUTOSCOPE_CONCURRENCY"] = "many"
    result = mutoscope("ls")
    assert result.code == 2
    assert result.err == "error: MUTOSCOPE_CONCURRENCY='many' is not valid: use an integer\n"


def test_up_on_a_store_that_is_not_writable(home: Path, mutoscope: Command) -> None:
    home.parent.joinpath("file").write_bytes(b"")
    os.environ["MUTOSCOPE_STORE_URL"] = f"file://{home.parent}/file/store"
    result = mutoscope("up")
    assert result.code == 2
    assert len(result.err.splitlines()) == 1
    assert "MUTOSCOPE_STORE_URL" in result.err or "store" in result.err
    assert not stack.record_path(home).exists(), "nothing was started"


def test_status_tells_that_nothing_runs(home: Path, mutoscope: Command) -> None:
    result = mutoscope("status")
    assert result.code == 1
    assert result.out == f"no stack is running on {home}: start one with `mutoscope up`\n"
    assert '"running": false' in mutoscope("status", "--json").out


def test_down_without_a_stack_is_content(home: Path, mutoscope: Command) -> None:
    result = mutoscope("down")
    assert (result.code, result.out) == (0, f"no stack is running on {home}\n")


@pytest.mark.parametrize("option", ["--port", "--web-port"])
def test_up_refuses_a_taken_port_that_was_asked_for(home: Path, mutoscope: Command, option: str) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        result = mutoscope("up", option, str(taken.getsockname()[1]))
    assert result.code == 2
    assert "the port is taken" in result.err
