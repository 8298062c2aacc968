"""The files of infra/, read once; manifests as kustomize renders them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
INFRA = ROOT / "infra"
COMPOSE = INFRA / "compose" / "compose.yaml"
OVERLAYS = ("local", "production")
PROGRAMS = Path(sys.executable).parent
"""Where the wheels of caddy, hadolint and kubectl put them."""

Manifest = Mapping[str, Any]


@cache
def rendered(overlay: str) -> tuple[Manifest, ...]:
    """All manifests of an overlay."""
    folder = INFRA / "kubernetes" / "overlays" / overlay
    ran = subprocess.run(
        [str(PROGRAMS / "kubectl"), "kustomize", str(folder)], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert not ran.stderr, "kustomize warns of what will not work for long"
    return tuple(yaml.safe_load_all(ran.stdout))


def pods(overlay: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Name and pod template of everything in an overlay that runs pods."""
    for manifest in rendered(overlay):
        template = manifest.get("spec", {}).get("template")
        if isinstance(template, dict):
            yield f"{manifest['kind']}/{manifest['metadata']['name']}", template


def containers(overlay: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every container of an overlay, with the name of what runs it."""
    for name, template in pods(overlay):
        for container in (*template["spec"].get("initContainers", ()), *template["spec"]["containers"]):
            yield f"{name}/{container['name']}", container


@pytest.fixture(scope="session")
def compose() -> Mapping[str, Any]:
    """compose.yaml with its anchors resolved, before variables are put in."""
    found: Mapping[str, Any] = yaml.safe_load(COMPOSE.read_text())
    return found
