"""The public surface: commands and flags are a snapshot, help is quick to load and shows examples."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from mutoscope.platform.cli.main import app

SNAPSHOT = Path(__file__).with_name("commands.txt")

HEAVY = ("torch", "diffusers", "transformers", "prefect", "sqlalchemy", "fsspec", "numpy", "av")


def commands(group: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every command below a group, with the words that call it."""
    for name, command in sorted(group.commands.items()):
        if hasattr(command, "commands"):
            yield from commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def surface() -> str:
    lines = []
    for path, command in commands(get_command(app), "mutoscope"):
        words = []
        for parameter in command.params:
            if parameter.param_type_name == "argument":
                words.append(parameter.name.upper() if parameter.required else f"[{parameter.name.upper()}]")
            else:
                words.append("/".join((*parameter.opts, *parameter.secondary_opts)))
        lines.append(" ".join((path, *words)))
    return "\n".join(lines) + "\n"


def test_commands_and_flags_are_those_on_record() -> None:
    assert surface() == SNAPSHOT.read_text(), (
        f"the public surface changed: if that is meant, update {SNAPSHOT}"
    )


@pytest.mark.parametrize(("path", "command"), list(commands(get_command(app), "mutoscope")))
def test_every_command_shows_an_example(path: str, command: Any) -> None:
    assert f"Example: {path}" in command.help


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["up", "--help"], ["weights", "--help"]])
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    script = (
        "import sys\n"
        "from mutoscope.platform.cli.main import main\n"
        "try:\n    main(sys.argv[1:])\n"
        "except SystemExit as ended:\n    assert not ended.code, ended.code\n"
        "print('LOADED', *sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True
    )
    loaded = ran.stdout.splitlines()[-1].split()
    assert loaded[0] == "LOADED"
    assert not set(HEAVY) & set(loaded)
