"""The page about checkpoints: its programs run as they stand there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.artifacts.components import put_component
from tests.support.safetensors import checkpoint, saved

PAGE = Path(__file__).parents[2] / "docs/checkpoints.md"
RESTORE, OPEN = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
FILES = {
    "config.json": b"{}",
    "shards/model-1.safetensors": saved(checkpoint(1, small=1500)),
    "shards/model-2.safetensors": saved({"proj_out.weight": np.ones((300, 300), np.float32)}),
}


def test_a_component_is_restored_without_our_code(store: ArtifactStore, tmp_path: Path) -> None:
    digest = put_component(store, "net", FILES).manifest.digest
    script = tmp_path / "restore.py"
    script.write_text(RESTORE)
    # -I: none of our packages can be found.
    arguments = [
        sys.executable,
        "-I",
        script,
        store.root_url.removeprefix("file://"),
        digest,
        tmp_path / "net",
    ]
    subprocess.run(arguments, check=True)
    assert {path: (tmp_path / "net" / path).read_bytes() for path in FILES} == FILES


def test_a_tensor_is_read_as_the_page_says(store: ArtifactStore) -> None:
    names: dict[str, Any] = {"store": store, "digest": put_component(store, "net", FILES).manifest.digest}
    exec(OPEN, names)
    assert np.array_equal(names["weight"], np.ones((300, 300), np.float32))


def test_the_figures_on_the_page_are_those_of_the_code() -> None:
    from mutoscope.platform.artifacts import manifest, split

    text = PAGE.read_text()
    assert (split.SMALL_BYTES, split.PACK_BYTES) == (64 << 10, 1 << 20)
    for said in ("below 64 KiB", "hold 1 MiB", manifest.FORMAT, manifest.PLAIN_FORMAT):
        assert said in text
