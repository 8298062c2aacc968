"""What infra/ and its guide name exists: settings, modules, options, commands, ports."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from prefect.settings import Settings as PrefectSettings
from prefect.settings.legacy import _get_settings_fields

from mutoscope.platform.settings import Settings
from tests.infra.conftest import INFRA, OVERLAYS, ROOT, containers

GUIDE = ROOT / "docs" / "deploy.md"
FILES = sorted(
    file for file in (*INFRA.rglob("*"), GUIDE) if file.is_file() and file.suffix not in (".json", ".png")
)
OURS = {f"MUTOSCOPE_{name.upper()}" for name in Settings.model_fields}
PREFECTS = {name for name in _get_settings_fields(PrefectSettings) if name.startswith("PREFECT_")}

SURFACE = [
    shlex.split(line)[1:] for line in (ROOT / "tests" / "cli" / "commands.txt").read_text().splitlines()
]

Command = Sequence[str]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_settings_are_real(file: Path) -> None:
    """A variable that nobody reads is a setting that somebody believes in."""
    text = file.read_text()
    assert set(re.findall(r"\bMUTOSCOPE_[A-Z_]+[A-Z]\b", text)) - OURS == set()
    named = set(re.findall(r"\bPREFECT_[A-Z_]+[A-Z]\b", text)) - {"PREFECT_AUTH"}
    assert named - PREFECTS == set()


def started(compose: Mapping[str, Any]) -> Iterator[tuple[str, Command]]:
    """Every command line of ours, with where it stands."""
    for name, service in compose["services"].items():
        if service["image"].startswith("mutoscope/"):
            yield f"compose {name}", service["command"]
    for overlay in OVERLAYS:
        for where, container in containers(overlay):
            if "mutoscope/" in container["image"]:
                yield f"{overlay} {where}", [*container["command"], *container.get("args", ())]
    for line in re.findall(r"^CMD (\[.*\])$", (INFRA / "images" / "Dockerfile").read_text(), re.MULTILINE):
        yield "Dockerfile", json.loads(line)


def test_commands_are_real(compose: Mapping[str, Any]) -> None:
    found = list(started(compose))
    assert len(found) > 25
    for where, command in found:
        words = ["python", *command[command.index("-m") :]] if command[0] == "torchrun" else list(command)
        match words:
            case ["python", "-m", module, *arguments]:
                spec = importlib.util.find_spec(module)
                assert spec is not None, where
                file = Path(str(spec.origin))
                file = file.with_name("__main__.py") if file.name == "__init__.py" else file
                source = ast.parse(file.read_text())
                assert "__main__" in _texts(source), f"{where}: {module} is no program"
                assert _options(arguments) <= _texts(source), where
            case ["mutoscope", *arguments]:
                assert _is_on_the_surface(arguments), where
            case ["prefect", "server", "start", *arguments]:
                assert _options(arguments) <= {"--host", "--port"}, where
            case other:
                raise AssertionError(f"{where}: {other}")


def test_commands_of_the_guide_are_real() -> None:
    text = GUIDE.read_text()
    blocks = "\n".join(re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)) + "\n"
    blocks += "\n".join(re.findall(r"`(mutoscope [^`]+)`", text))
    # The namespace of `kubectl --namespace mutoscope wait` is no command.
    ours = r"(?<!--namespace )(?<![\w-])mutoscope ([a-z][^#\n]*)"
    found = re.findall(ours, blocks.replace("\\\n", " "))
    assert len(found) > 15
    for command in found:
        assert _is_on_the_surface(shlex.split(command)), command


def test_files_that_are_named_exist() -> None:
    for file in (INFRA / "README.md", GUIDE):
        for target in re.findall(r"\]\(((?!https:)[^)#]+)\)", file.read_text()):
            assert (file.parent / target).exists(), f"{file.name}: {target}"


def _texts(source: ast.AST) -> set[str]:
    """All literal texts of a module."""
    return {
        node.value
        for node in ast.walk(source)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def _options(arguments: Sequence[str]) -> set[str]:
    return {word.partition("=")[0] for word in arguments if word.startswith("--")}


def _is_on_the_surface(words: Sequence[str]) -> bool:
    for known in SURFACE:
        path = [word for word in known if re.fullmatch(r"[a-z]+", word)]
        offered = {option for word in known if word.startswith("-") for option in word.split("/")}
        if list(words[: len(path)]) == path and _options(words) <= offered:
            return True
    return False
