"""Who may import what, seen from a fresh interpreter."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("mutoscope.platform.refs", ("fsspec", "sqlalchemy", "av", "numpy", "torch")),
        ("mutoscope.platform.artifacts", ("fsspec", "sqlalchemy", "av", "PIL", "torch")),
        ("mutoscope.platform.artifacts.codecs", ("fsspec", "sqlalchemy", "torch")),
        ("mutoscope.platform.catalog", ("alembic", "fsspec", "av", "numpy", "torch", "prefect")),
    ],
)
def test_imports_stay_light(module: str, unwanted: tuple[str, ...]) -> None:
    code = f"import sys, {module}; print([name for name in {unwanted!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
