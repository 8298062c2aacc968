"""Contracts and card digests: what changes them, what does not, and that they need no torch."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from mutoscope.models.flux.card import CARD
from mutoscope.platform.engine import numerics
from mutoscope.platform.engine.card import ComponentSpec
from tests.engine import toy


def test_the_contract_names_what_decides_bits() -> None:
    contract = numerics.cpu_contract(2)
    assert set(contract) == {"device", "dtype", "mode", "threads", "versions", "batching"}
    assert contract["batching"] == {"mode": "off"}
    assert (contract["dtype"], contract["mode"], contract["threads"]) == ("float32", "bitwise", 2)
    assert contract["versions"]["torch"] == torch.__version__


def test_the_contract_digest_follows_every_field() -> None:
    contract = numerics.cpu_contract(1)
    digest = numerics.contract_digest(contract)
    assert numerics.contract_digest(dict(reversed(contract.items()))) == digest
    changed = [
        {**contract, "threads": 2},
        {**contract, "device": "cpu-other"},
        {**contract, "versions": {**contract["versions"], "torch": "0"}},
        {**contract, "versions": {**contract["versions"], "av": None}},
    ]
    assert len({digest, *map(numerics.contract_digest, changed)}) == 5


CPUINFO = "processor\t: 0\nvendor_id\t: {vendor}\nflags\t\t: fpu sse2 {flags}\n\nprocessor\t: 1\n"


@pytest.mark.parametrize(
    ("vendor", "flags", "expected"),
    [
        ("GenuineIntel", "avx2 fma avx512f avx512bw avx512vl avx512dq", "cpu-intel-avx512"),
        ("GenuineIntel", "avx2 fma avx512f", "cpu-intel-avx2"),
        ("AuthenticAMD", "avx2 fma", "cpu-amd-avx2"),
        ("AuthenticAMD", "avx", "cpu-amd-default"),
    ],
)
def test_cpu_class(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, vendor: str, flags: str, expected: str
) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text(CPUINFO.format(vendor=vendor, flags=flags))
    monkeypatch.setattr(numerics, "_CPUINFO", path)
    monkeypatch.delenv("ATEN_CPU_CAPABILITY", raising=False)
    assert numerics.cpu_class.__wrapped__() == expected
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "avx2")
    assert numerics.cpu_class.__wrapped__() == f"{expected.rpartition('-')[0]}-avx2"


def test_cpu_class_agrees_with_torch() -> None:
    reported = torch.backends.cpu.get_cpu_capability().lower().replace("no ", "")
    assert numerics.cpu_class().rpartition("-")[2] == reported


def test_cpu_class_where_the_system_tells_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(numerics, "_CPUINFO", tmp_path / "absent")
    monkeypatch.delenv("ATEN_CPU_CAPABILITY", raising=False)
    assert numerics.cpu_class.__wrapped__().endswith("-default")


def test_the_card_digest_follows_the_declaration() -> None:
    digest = numerics.card_digest(CARD)
    spec = ComponentSpec("vae", "diffusers", ("AutoencoderKL",), optional=True)
    changed = [
        replace(CARD, id="flux-other"),
        replace(CARD, components=(spec, *CARD.components[1:])),
        replace(CARD, outputs=CARD.outputs[:1]),
        replace(CARD, parameters=toy.ToyParameters),
        replace(CARD, builder="elsewhere:build"),
        replace(CARD, sources=()),
    ]
    assert len({digest, *map(numerics.card_digest, changed)}) == len(changed) + 1
    assert numerics.card_digest(replace(CARD, title="A better title")) == digest


def test_the_card_digest_follows_the_source_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "family_under_test"
    package.mkdir()
    (package / "__init__.py").write_text("raise AssertionError('sources are read, not imported')\n")
    (package / "program.py").write_text("SCALE = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    card = replace(CARD, sources=("family_under_test",))

    def digest() -> str:
        return numerics.card_digest.__wrapped__(card)

    first = digest()
    assert digest() == first
    (package / "program.py").write_text("SCALE = 2\n")
    second = digest()
    (package / "program.py").rename(package / "renamed.py")
    assert len({first, second, digest()}) == 3


def test_sources_include_the_engine_and_the_family() -> None:
    assert "engine.py" in numerics.source_texts("mutoscope.platform.engine")
    assert "program.py" in numerics.source_texts("mutoscope.models.flux")
    (name,) = numerics.source_texts("mutoscope.models.starter.grammar")
    assert name == "grammar.py"
    with pytest.raises(ModuleNotFoundError, match=r"card source 'mutoscope\.models\.nothing'"):
        numerics.source_texts("mutoscope.models.nothing")


def test_configure_torch_keeps_the_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    threads, mode = torch.get_num_threads(), torch.get_deterministic_debug_mode()
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    try:
        numerics.configure_torch(numerics.cpu_contract(1))
        assert torch.get_num_threads() == 1
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.is_deterministic_algorithms_warn_only_enabled()
        assert not torch.backends.cuda.matmul.allow_tf32
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    finally:
        torch.set_num_threads(threads)
        torch.set_deterministic_debug_mode(mode)


LIGHT = """
import sys
import mutoscope.models.registry, mutoscope.models.flux.card, mutoscope.models.flux.folder
import mutoscope.models.common.folder, mutoscope.models.starter.folders
from mutoscope.models.flux.card import CARD
from mutoscope.platform.engine import card, loop, numerics, request, sampling, validation
numerics.card_digest(CARD), numerics.contract_digest(numerics.cpu_contract(1))
sampling.FlowSchedule(shift=3.0).sigmas(4)
print([name for name in ("torch", "diffusers", "transformers") if name in sys.modules])
"""


def test_declaring_and_checking_import_no_torch() -> None:
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
