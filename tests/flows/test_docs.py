"""The worked example of docs/workflows.md, run as it is printed there; and its tables name what there is."""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from mutoscope.platform.orchestration import registry
from mutoscope.platform.orchestration.registry import discover
from mutoscope.platform.orchestration.runtime import Runtime
from tests.flows.conftest import Studio

PAGE = (Path(__file__).parents[2] / "docs" / "workflows.md").read_text()


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    ((name, text),) = re.findall(r"```python\n# (\S+)\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    module = name.removesuffix(".py")
    # Before the registry is a copy: what ships registers once, when it is first imported.
    monkeypatch.setattr(registry.REGISTRY, "_by_id", dict(discover().all()))
    monkeypatch.setenv(registry.VARIABLE, module)
    discover()
    yield importlib.import_module(module)
    del sys.modules[module]


@pytest.mark.long
@pytest.mark.usefixtures("prefect_server")
async def test_the_example_runs(example: ModuleType, studio: Studio, runtime: Runtime) -> None:
    shots = ["a red circle", "a blue square"]
    made = await example.storyboard(shots=shots, seed=7)
    assert made["video"] is None
    assert studio.computed() == {"flux-t2i": 4, "reward-scene": 4, "contact-sheet": 1}
    (row,) = runtime.catalog.workflows.list(workflow="image.storyboard")
    assert row.outputs is not None
    assert set(row.outputs) == {"sheet", "shots.0", "shots.1", "scores"}
    assert json.loads(runtime.store.get(row.outputs["scores"])) == made["scores"]

    animated = await example.storyboard(shots=shots, seed=7, animate=True)
    assert studio.computed() == {"wan-i2v": 1}
    assert animated["video"].kind == "video"


def test_the_page_names_every_workflow_that_makes_something() -> None:
    names = {workflow.name for workflow in discover().all().values() if "generate" in workflow.entrypoint}
    told = PAGE.partition("## Those that ship")[2]
    assert {name for name in names if f"`{name}`" not in told} == {"score"}  # told of in docs/rewards.md


def test_the_commands_of_the_page_fit_the_workflows() -> None:
    commands = re.findall(r"^mutoscope run (\w+) (.*)$", PAGE, re.MULTILINE)
    assert len(commands) >= 5
    for name, arguments in commands:
        if name == "storyboard":
            continue
        texts = dict(re.findall(r'(\w+)=("[^"]*"|\S+)', arguments))
        declared = discover().get(name)
        declared.validate(declared.coerce({key: text.strip('"') for key, text in texts.items()}))
