"""Compose: the specification's schema, and what a schema cannot say."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from typing import Any

from tests.infra.conftest import COMPOSE, INFRA, PROGRAMS

FOLDER = INFRA / "compose"


def test_the_files_keep_to_the_compose_specification() -> None:
    checker = [str(PROGRAMS / "check-jsonschema"), "--builtin-schema", "vendor.compose-spec"]
    files = sorted(map(str, FOLDER.glob("*.yaml")))
    assert len(files) == 2
    ran = subprocess.run([*checker, *files], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout


def test_what_the_files_ask_for_is_in_the_example_and_nothing_else() -> None:
    asked = set(re.findall(r"\$\{(\w+)", "".join(file.read_text() for file in FOLDER.glob("*.yaml"))))
    offered = set(re.findall(r"^(\w+)=", (FOLDER / "example.env").read_text(), re.MULTILINE))
    assert asked == offered


def test_a_secret_that_nobody_set_stops_the_start() -> None:
    """Compose puts an empty text for a variable without a value, unless it is told to refuse."""
    text = COMPOSE.read_text()
    example = (FOLDER / "example.env").read_text()
    empty = re.findall(r"^(\w+)=$", example, re.MULTILINE)
    assert "DATABASE_PASSWORD" in empty
    for name in set(empty) - {"GRAFANA_PASSWORD"}:
        assert f"${{{name}:?" in text, name


def test_names_lead_somewhere(compose: Mapping[str, Any]) -> None:
    services, volumes, configs = compose["services"], set(compose["volumes"]), set(compose["configs"])
    used_volumes, used_configs = set(), set()
    for name, service in services.items():
        assert set(service.get("depends_on", ())) <= set(services), name
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            if source.startswith("."):
                assert (FOLDER / source).is_file(), f"{name}: {source}"
            else:
                used_volumes.add(source)
        used_configs |= {config["source"] for config in service.get("configs", ())}
        for needed, how in service.get("depends_on", {}).items():
            if how["condition"] == "service_healthy":
                assert "healthcheck" in services[needed], f"{name} waits for the health of {needed}"
    assert used_volumes == volumes
    assert used_configs == configs


def test_only_the_proxy_is_published(compose: Mapping[str, Any]) -> None:
    published = {
        name: service["ports"] for name, service in compose["services"].items() if "ports" in service
    }
    assert set(published) == {"proxy", "grafana"}
    assert all(port.startswith("127.0.0.1:") for port in published["grafana"])


def test_images_of_others_are_pinned(compose: Mapping[str, Any]) -> None:
    for name, service in compose["services"].items():
        tag = service["image"].partition(":")[2]
        assert tag, name
        assert tag != "latest", name


def test_a_worker_has_more_time_than_it_takes_to_drain(compose: Mapping[str, Any]) -> None:
    worker = compose["services"]["worker"]
    drain = int(worker["command"][worker["command"].index("--drain-seconds") + 1])
    assert worker["stop_grace_period"] == "2m"
    assert drain + 15 <= 120
