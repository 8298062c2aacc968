"""A checkpoint kept as tensors, against the same file kept whole.

    python tests/bench/bench_checkpoint.py [--rounds 3] [--bytes 1073741824] [--tensors 400] [--output FILE]

For a file of random float32 matrices (and, for the second table, the starter image model's transformer):

    whole        the file put as one object; what the first format did
    split        the file put as tensors
    again        the same once more: nothing may be written
    changed      a second version, in which one tensor differs: bytes added to the store
    folder       the component as a folder again, its bytes verified; `whole folder` is that of the whole file
    one          one tensor opened, out of a store nobody has read from: bytes read

Each step is a process of its own, and reports the peak of its resident memory above what it held before.
Whole and split take turns, and a ratio is the median of the rounds' ratios.

Bars: a changed tensor costs itself and the manifest; memory stays within 256 MB; again writes nothing. The
figures decided that a file's digest is computed beside the tensors', in a thread of its own, and that a file
put together from local objects is hashed once, as a whole.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from mutoscope.models.starter.folders import starter_folder  # noqa: E402
from mutoscope.platform.artifacts import ArtifactStore  # noqa: E402
from mutoscope.platform.artifacts.components import put_component  # noqa: E402
from mutoscope.platform.artifacts.manifest import ComponentManifest, ManifestFile  # noqa: E402
from mutoscope.platform.artifacts.tensors import open_tensors  # noqa: E402
from mutoscope.platform.tensorfile import build_header, read_layout  # noqa: E402
from mutoscope.workers.weight_cache import WeightCache  # noqa: E402
from tests.bench import environment  # noqa: E402
from tests.support.counting import counting  # noqa: E402

RESULT = ROOT / "tests/bench/results/checkpoint.json"
MODEL = "model.safetensors"
MEMORY_BAR = 256_000_000
"""Bytes a step may add to its process's resident memory."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bytes", type=int, default=1 << 30)
    parser.add_argument("--tensors", type=int, default=400)
    parser.add_argument("--output", type=Path, default=RESULT)
    parser.add_argument("--step", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        print(json.dumps(_measured(options.step[0], Path(options.step[1]))))
        return
    load = environment.others_load()
    record = {
        "environment": environment.describe(),
        "busy": environment.is_busy(load),
        "rounds": options.rounds,
        "large": _compare(options.rounds, lambda path: _random(path, options.bytes, options.tensors)),
        "starter": _compare(options.rounds, _starter),
    }
    record["met"] = dict(_bars(record))
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(record, indent=1) + "\n")
    _show(record)
    if not all(record["met"].values()):
        sys.exit("a bar was missed")


def _random(path: Path, size: int, tensors: int) -> None:
    """Incompressible, and not all in memory at once."""
    rows = size // tensors // 4096
    header = build_header(
        ((f"blocks.{i:04}.weight", "F32", (rows, 1024), rows * 4096) for i in range(tensors)),
        {"format": "pt"},
    )
    with path.open("wb") as file:
        file.write(header)
        for index in range(tensors):
            file.write(np.random.default_rng(index).bytes(rows * 4096))


def _starter(path: Path) -> None:
    folder = starter_folder("flux-t2i")
    assert folder is not None
    shutil.copyfile(folder / "transformer/diffusion_pytorch_model.safetensors", path)


def _change(path: Path) -> int:
    """Alter the largest tensor in place; returns its bytes."""
    with path.open("r+b") as file:

        def read(start: int, length: int) -> bytes:
            file.seek(start)
            return file.read(length)

        span = max(read_layout(read, path.stat().st_size).spans, key=lambda span: span.size)
        file.seek(span.start)
        file.write(b"\0\1\2\3" * (span.size // 4))
        return span.size


def _compare(rounds: int, write: Callable[[Path], None]) -> dict[str, Any]:
    taken: list[dict[str, Any]] = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(prefix="mutoscope-bench-") as name:
            folder = Path(name)
            write(folder / MODEL)
            # As a downloaded or just written checkpoint is: in the page cache, for both alike.
            steps = {
                step: _run(step, folder)
                for step in ("whole", "split", "again", "whole folder", "folder", "one")
            }
            size, changed = (folder / MODEL).stat().st_size, _change(folder / MODEL)
            steps["changed"] = _run("split", folder)
            taken.append({"file_bytes": size, "changed_tensor_bytes": changed, "steps": steps})
    ratio = [r["steps"]["whole"]["seconds"] / r["steps"]["split"]["seconds"] for r in taken]
    return {"split_of_whole_speed": statistics.median(ratio), "taken": taken}


def _run(step: str, folder: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, __file__, "--step", step, folder], capture_output=True, text=True, check=True
    )
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def _measured(step: str, folder: Path) -> dict[str, Any]:
    """Runs in the step's own process."""
    kept = ArtifactStore.open(str(folder / ("whole" if step.startswith("whole") else "split")))
    before = {stored.digest: stored.modified for stored in kept.inventory()}
    store, backend = counting(kept)
    base, started = _reset_peak(), time.perf_counter()
    facts = _STEPS[step](store, folder) or {}
    seconds, added = time.perf_counter() - started, _peak() - base
    after = {stored.digest: (stored.modified, stored.size) for stored in kept.inventory()}
    written = [size for digest, (modified, size) in after.items() if before.get(digest) != modified]
    return {
        "seconds": seconds,
        "memory_added_bytes": added,
        "objects_written": len(written),
        "bytes_written": sum(written),
        "objects_read": len(set(backend.names("read", "read_range", "open"))),
        **facts,
    }


def _whole(store: ArtifactStore, folder: Path) -> None:
    ref = store.put(folder / MODEL, kind="blob", media_type="application/vnd.safetensors")
    manifest = ComponentManifest("net", (ManifestFile(MODEL, ref.digest, ref.size),))
    _remember(folder / "whole.txt", store, manifest.to_bytes())


def _split(store: ArtifactStore, folder: Path) -> None:
    stored = put_component(store, "net", {MODEL: folder / MODEL})
    (folder / "split.txt").write_text(stored.manifest.digest)


def _remember(path: Path, store: ArtifactStore, manifest: bytes) -> None:
    path.write_text(store.put(manifest, kind="weights", media_type="application/json").digest)


def _folder(store: ArtifactStore, folder: Path, name: str) -> None:
    WeightCache(store, folder / f"cache-{name}").folder((folder / f"{name}.txt").read_text())


def _one(store: ArtifactStore, folder: Path) -> dict[str, Any]:
    tensors = open_tensors(store, ComponentManifest.parse(store.get((folder / "split.txt").read_text())))
    return {"tensor_bytes": tensors[max(tensors)].nbytes}


_STEPS: dict[str, Callable[[ArtifactStore, Path], dict[str, Any] | None]] = {
    "whole": _whole,
    "split": _split,
    "again": _split,
    "folder": lambda store, folder: _folder(store, folder, "split"),
    "whole folder": lambda store, folder: _folder(store, folder, "whole"),
    "one": _one,
}


def _reset_peak() -> int:
    """Forget the peak so far; bytes resident now."""
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def _peak() -> int:
    return _status("VmHWM")


def _status(field: str) -> int:
    lines = Path(f"/proc/{os.getpid()}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def _bars(record: dict[str, Any]) -> list[tuple[str, bool]]:
    rounds = [(title, taken) for title in ("large", "starter") for taken in record[title]["taken"]]
    return [
        (
            "memory",
            all(s["memory_added_bytes"] <= MEMORY_BAR for _, t in rounds for s in t["steps"].values()),
        ),
        ("again writes nothing", all(t["steps"]["again"]["bytes_written"] == 0 for _, t in rounds)),
        (
            "a changed tensor costs itself and the manifest",
            all(
                t["steps"]["changed"]["objects_written"] == 2
                and t["steps"]["changed"]["bytes_written"] <= t["changed_tensor_bytes"] + 200_000
                for _, t in rounds
            ),
        ),
        ("one tensor is one object read", all(t["steps"]["one"]["objects_read"] == 2 for _, t in rounds)),
    ]


def _show(record: dict[str, Any]) -> None:
    for title in ("large", "starter"):
        taken = record[title]["taken"]
        size = taken[0]["file_bytes"]
        print(
            f"{title}: {size:,} bytes, split at {record[title]['split_of_whole_speed']:.2f} of whole's speed"
        )
        for step in taken[0]["steps"]:
            seconds = statistics.median(t["steps"][step]["seconds"] for t in taken)
            last = taken[-1]["steps"][step]
            print(
                f"  {step:13} {size / seconds / 1e6:8.0f} MB/s  {seconds:7.3f} s"
                f"  +{last['memory_added_bytes'] / 1e6:5.0f} MB resident"
                f"  {last['objects_written']:4} objects, {last['bytes_written']:13,} bytes written"
            )
    print("met:", record["met"], "(busy machine)" if record["busy"] else "")


if __name__ == "__main__":
    main()
