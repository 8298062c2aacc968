"""The images: linted, and a server image without a GPU stack that still does all that is asked of it."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.infra.conftest import INFRA, PROGRAMS, ROOT

IMAGES = INFRA / "images"


def test_the_dockerfile_passes_its_linter() -> None:
    ran = subprocess.run(
        [str(PROGRAMS / "hadolint"), "--no-color", str(IMAGES / "Dockerfile")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout


def requirements(file: Path) -> set[str]:
    lines = (line.partition("#")[0].strip() for line in file.read_text().splitlines())
    return {_name(line) for line in lines if line}


def _name(requirement: str) -> str:
    return re.split(r"[\[<>=,; ]", requirement)[0]


def test_both_images_together_install_what_the_package_needs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = {
        _name(line) for line in (*project["dependencies"], *extras["postgres"], *extras["s3"], *extras["ocr"])
    }
    server, worker = requirements(IMAGES / "server.txt"), requirements(IMAGES / "worker.txt")
    assert server | worker == wanted
    assert not server & worker


# Refuses the GPU stack, as an image without it does; then imports what the server and flow images start, and
# prepares a home.
WITHOUT = """
import importlib, sys
from importlib.machinery import PathFinder

class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in {absent!r} else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Without
for name in {modules!r}:
    importlib.import_module(name)
from mutoscope.platform.cli.main import main
main(["prepare"])
"""
MODULES = [
    "mutoscope.flows.shipped",
    "mutoscope.platform.orchestration.deployments",
    "mutoscope.platform.orchestration.pool",
    "mutoscope.platform.orchestration.reconciler",
    "mutoscope.platform.web.__main__",
]


@pytest.mark.slow
def test_servers_and_flows_need_no_gpu_stack(tmp_path: Path) -> None:
    absent = requirements(IMAGES / "worker.txt")
    assert {"torch", "diffusers", "transformers"} <= absent
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT.format(absent=absent, modules=MODULES)],
        env={
            "PATH": "/usr/bin:/bin",
            "HOME": str(tmp_path),
            "MUTOSCOPE_HOME": str(tmp_path / "home"),
            "PREFECT_HOME": str(tmp_path / "prefect"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    for card in ("flux-t2i", "reward-ocr"):
        assert re.search(rf"^{card} +starter weights imported", ran.stdout, re.MULTILINE), ran.stdout
