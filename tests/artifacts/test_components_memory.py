"""A checkpoint far larger than the memory it may take. Slow: a gigabyte is written and read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.tensorfile import build_header

MEBIBYTE = 1 << 20
BOUND_BYTES = 256 * MEBIBYTE

_PUT = """
import json, sys
from pathlib import Path
from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.artifacts.assembly import write_file
from mutoscope.platform.artifacts.components import put_component
from mutoscope.platform.artifacts.manifest import ComponentManifest

def resident(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))

store, folder = ArtifactStore.open(sys.argv[1]), Path(sys.argv[2])
Path("/proc/self/clear_refs").write_text("5")
base = resident("VmRSS")
stored = put_component(store, "net", {"model.safetensors": folder / "model.safetensors"})
put = resident("VmHWM") - base
(file,) = ComponentManifest.parse(store.get(stored.manifest.digest)).files
write_file(store, file, folder / "again.safetensors")
print(json.dumps({"put": put, "both": resident("VmHWM") - base}))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of resident memory from /proc")
def test_memory_is_bounded_whatever_the_size(store: ArtifactStore, tmp_path: Path) -> None:
    # One tensor beyond what passes through memory, and many of the size of a large model's.
    sizes = [400 * MEBIBYTE, *[90 * MEBIBYTE] * 6, *[30_000] * 3000]
    header = build_header([(f"t{n}", "U8", (size,), size) for n, size in enumerate(sizes)], {"format": "pt"})
    path = tmp_path / "model.safetensors"
    with path.open("wb") as file:
        file.write(header)
        for number, size in enumerate(sizes):
            file.write(bytes([number % 251]) * size)
    done = subprocess.run(
        [sys.executable, "-c", _PUT, store.root_url, tmp_path], capture_output=True, text=True, check=True
    )
    added = json.loads(done.stdout)
    assert added["put"] <= added["both"] <= BOUND_BYTES, added
    same = subprocess.run(["cmp", path, tmp_path / "again.safetensors"], check=False)
    assert same.returncode == 0
