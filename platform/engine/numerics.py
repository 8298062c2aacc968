"""The numeric contract: everything about code and machine that decides the bits of an output. No torch at
import.

A contract and a card digest go into every memo key, so they must be computable on a flow host that has no GPU
stack: versions come from package metadata, the CPU's instruction set from the operating system and the code
from its source text. Only `configure_torch`, which makes a process keep a contract, and `cuda_contract`
import torch.

How steps share calls is part of a contract as well (`batching`). A contract made here has every row in a call
of its own, which any worker of that device can keep; a worker that has calibrated a card tells the contract
it serves it under, and that one is planned with from then on.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from mutoscope.platform import ids
from mutoscope.platform.engine.card import Card

CONTRACT_DOMAIN = "mutoscope.numeric-contract/1"
CARD_DOMAIN = "mutoscope.card/1"

_DECIDING = ("torch", "diffusers", "transformers", "tokenizers", "ftfy", "numpy", "pillow", "av")
"""Libraries whose release can change a value, a token or an encoded byte."""

_ENGINE = "mutoscope.platform.engine"
_CPUINFO = Path("/proc/cpuinfo")


def cpu_contract(threads: int) -> dict[str, Any]:
    """The contract of a CPU worker with `threads` torch threads."""
    return {
        "device": cpu_class(),
        "dtype": "float32",
        "mode": "bitwise",
        "threads": threads,
        "versions": library_versions(),
        "batching": {"mode": "off"},
    }


def cuda_contract(index: int = 0) -> dict[str, Any]:
    """The contract of a CUDA worker: device model, capability and torch's CUDA build. Imports torch."""
    import torch

    name, (major, minor) = torch.cuda.get_device_name(index), torch.cuda.get_device_capability(index)
    return {
        "device": f"cuda-{name.lower().replace(' ', '-')}-sm{major}{minor}",
        "dtype": "float32",
        "mode": "bitwise",
        "threads": 1,
        "versions": {**library_versions(), "cuda": str(torch.version.cuda)},
        "batching": {"mode": "off"},
    }


def with_batching(contract: Mapping[str, Any], batching: Mapping[str, Any]) -> dict[str, Any]:
    """The contract of a card whose steps share calls as `batching` says (see `Calibration.contract`).

    A result that repeats only up to rounding is no longer promised bit for bit, so the mode says so too.
    """
    mode = "tolerance" if batching["mode"] == "tolerance" else contract["mode"]
    return {**contract, "mode": mode, "batching": dict(batching)}


def contract_digest(contract: Mapping[str, Any]) -> str:
    """Hex digest of a contract; workers and runs are matched by it."""
    return ids.digest(CONTRACT_DOMAIN, contract)


@lru_cache(maxsize=1)
def library_versions() -> dict[str, str | None]:
    """Installed release of every library that can change an output; None where one is absent."""
    return {name: _version(name) for name in _DECIDING}


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


@lru_cache(maxsize=1)
def cpu_class() -> str:
    """CPUs that torch's kernels treat alike, such as "cpu-amd-avx2".

    The vendor counts because the math library picks code paths by it; `ATEN_CPU_CAPABILITY`, which overrides
    torch's choice of instruction set, counts as what it names.
    """
    info = _cpuinfo()
    vendor = {"GenuineIntel": "intel", "AuthenticAMD": "amd"}.get(
        info.get("vendor_id", ""), platform.machine().lower()
    )
    override = os.environ.get("ATEN_CPU_CAPABILITY")
    return f"cpu-{vendor}-{override or _instruction_set(set(info.get('flags', '').split()))}"


def _cpuinfo() -> dict[str, str]:
    try:
        first, _, _ = _CPUINFO.read_text().partition("\n\n")
    except OSError:
        return {}
    pairs = (line.partition(":") for line in first.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _instruction_set(flags: set[str]) -> str:
    if {"avx512f", "avx512bw", "avx512vl", "avx512dq"} <= flags:
        return "avx512"
    if {"avx2", "fma"} <= flags:
        return "avx2"
    return "default"


@lru_cache(maxsize=64)
def card_digest(card: Card) -> str:
    """Hex digest of a card's declaration and of the source text that executes it: its family's and the
    engine's.

    Changed code is a changed key, so a memo never returns what other code made. Computed once per process,
    which is also how long loaded code stays what it is.
    """
    packages = sorted({*card.sources, _ENGINE})
    return ids.digest(
        CARD_DOMAIN,
        {
            "id": card.id,
            "components": [
                [c.name, c.library, list(c.classes), c.weighted, c.optional] for c in card.components
            ],
            "inputs": [[s.name, s.kind, s.required, s.many] for s in card.inputs],
            "outputs": [[s.name, s.kind, s.required] for s in card.outputs],
            "parameters": card.parameters.model_json_schema(),
            "recipe": card.recipe.model_json_schema(),
            "entrypoints": [card.inspector, card.loader, card.builder],
            "sources": {package: source_texts(package) for package in packages},
        },
    )


def source_texts(package: str) -> dict[str, str]:
    """SHA-256 of every Python file of a package by its path in it, or of a single module; the source itself
    is not imported."""
    spec = importlib.util.find_spec(package)
    if spec is None or not (spec.submodule_search_locations or spec.has_location):
        raise ModuleNotFoundError(f"card source {package!r} is not an importable package or module")
    if not spec.submodule_search_locations:
        module = Path(str(spec.origin))
        return {module.name: ids.sha256(module.read_bytes())}
    root = Path(next(iter(spec.submodule_search_locations)))
    return {
        path.relative_to(root).as_posix(): ids.sha256(path.read_bytes())
        for path in sorted(root.rglob("*.py"))
    }


def configure_torch(contract: Mapping[str, Any]) -> None:
    """Make this process keep a contract in "bitwise" mode; call before the first kernel.

    An operation without a deterministic implementation raises instead of varying: a run that cannot be
    repeated must not be memoised. TF32 is off, and cuBLAS gets the fixed workspace it needs to repeat itself.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    import torch

    torch.set_num_threads(int(contract["threads"]))
    # The switch of `use_deterministic_algorithms(True)`, which also imports the Inductor compiler: 2.7 s.
    torch.set_deterministic_debug_mode("error")
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
