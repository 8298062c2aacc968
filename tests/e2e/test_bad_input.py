"""What a person gets wrong: one line with a remedy, exit code 2, and a failed flow run that says the same."""

from __future__ import annotations

import re

import pytest

from tests.e2e.stack import Stack

pytestmark = pytest.mark.e2e

# arguments of `run`, what the line must say, and whether a flow run was started for it
CASES = {
    "unknown workflow": (
        ["text_to_vidoe", "prompt=x"],
        "workflow 'text_to_vidoe' is unknown: use one of",
        False,
    ),
    "unknown parameter": (
        ["text_to_video", "prompt=x", "sede=7"],
        "sede='7' is not valid: text_to_video takes",
        False,
    ),
    "missing prompt": (["text_to_video", "seed=7"], "prompt is required; pass prompt=", True),
    "negative steps": (
        ["text_to_video", "prompt=x", "steps=-3"],
        "steps=-3 is not valid: use 1 or more",
        True,
    ),
    "impossible size": (["text_to_video", "prompt=x", "size=96x64"], "flux-t2i makes 64x64", True),
    "seed in words": (
        ["text_to_video", "prompt=x", "seed=abc"],
        "seed='abc' is not valid: use an integer",
        True,
    ),
    "no such picture": (
        ["image_to_video", "prompt=x", "image=image:ffffffffff"],
        "`mutoscope ls` lists",
        True,
    ),
    "no such file": (["image_to_video", "prompt=x", "image=./no.png"], "there is no such file", False),
}


def test_each_is_one_line_and_where_a_flow_began_its_run_failed_with_that_line(stack: Stack) -> None:
    known = {run["id"] for run in flow_runs(stack)}
    results = stack.run_all([["run", *arguments] for arguments, _, _ in CASES.values()])
    failed = [run for run in flow_runs(stack) if run["id"] not in known]
    messages = {run["state"]["message"] for run in failed if run["state"]["type"] == "FAILED"}
    for (name, (_, says, began)), result in zip(CASES.items(), results, strict=True):
        assert (name, result.code, result.out) == (name, 2, "")
        assert re.fullmatch(r"error: [^\n]+\n", result.err), f"{name}: {result.err}"
        assert says in result.err, name
        line = result.err.removeprefix("error: ").rstrip("\n")
        assert (line in messages) is began, f"{name}: {messages}"
    assert len(failed) == sum(began for _, _, began in CASES.values())


@pytest.mark.long
def test_a_submitted_one_fails_with_the_same_line(stack: Stack) -> None:
    result = stack.run("run", "text_to_video", "prompt=x", "steps=-3", "--submit")
    assert result.code == 2
    assert result.err.splitlines()[-1] == "error: steps=-3 is not valid: use 1 or more"


def flow_runs(stack: Stack) -> list[dict[str, object]]:
    found: list[dict[str, object]] = stack.api("/flow_runs/filter", {"limit": 200})
    return found
