"""LoRA adapters over one resident base: merged bit for bit, shared, interleaved, and refused by name."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from mutoscope.models.flux.card import CARD
from mutoscope.platform.engine.adapters import Adapter, adapt, read_adapter, with_adapter
from mutoscope.platform.engine.batching import Mode
from mutoscope.platform.engine.calibration import calibrate
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.instance import Instance, load_instance
from mutoscope.platform.engine.trace import Trace
from mutoscope.platform.engine.validation import checked_request
from mutoscope.platform.engine.views import origin_of
from mutoscope.platform.errors import InvalidAdapter
from tests.support.interleaving import content
from tests.support.tiny_flux import save_tiny_flux
from tests.support.versions import TARGETS, alone, digest_of, lora_tensors, named, request, write_lora


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_flux(tmp_path_factory.mktemp("flux") / "folder")


@pytest.fixture(scope="module")
def base(folder: Path) -> Instance:
    return named(folder)


@pytest.fixture
def adapter(base: Instance, tmp_path: Path) -> Callable[..., Adapter]:
    """The adapter of a seed, written to a file and read back."""

    def read(seed: int, component: str = "transformer", targets: tuple[str, ...] = TARGETS) -> Adapter:
        tensors = lora_tensors(base, seed, component=component, targets=targets)
        return read_adapter([write_lora(tmp_path / f"{component}-{seed}", tensors)], component)

    return read


def by_hand(weight: Tensor, tensors: dict[str, Tensor], name: str, scale: float = 1.0) -> Tensor:
    down, up = tensors[f"transformer.{name}.lora_A.weight"], tensors[f"transformer.{name}.lora_B.weight"]
    return weight + scale * (up @ down)


def test_a_view_equals_weights_merged_beforehand(base: Instance, folder: Path, tmp_path: Path) -> None:
    tensors = lora_tensors(base, 1)
    served = with_adapter(
        base, read_adapter([write_lora(tmp_path / "lora", tensors)], "transformer"), digest_of("a")
    )

    merged = load_instance(CARD, folder).components["transformer"]
    for name in TARGETS:
        layer = merged.get_submodule(name)
        layer.weight.data = by_hand(layer.weight.data, tensors, name)
    copy = tmp_path / "merged"
    copy.mkdir()
    for part in folder.iterdir():
        (copy / part.name).symlink_to(part)
    (copy / "transformer").unlink()
    merged.save_pretrained(copy / "transformer")

    for seed in range(3):
        asked = request("r", seed)
        assert alone(served, asked) == alone(load_instance(CARD, copy), asked) != alone(base, asked)


def test_a_view_shares_every_tensor_it_does_not_change(
    base: Instance, adapter: Callable[..., Adapter]
) -> None:
    module = base.components["transformer"]
    view = adapt(module, adapter(1), digest=digest_of("base"))
    own = {name for name, tensor in view.named_parameters() if tensor is not module.get_parameter(name)}
    assert own == {f"{name}.weight" for name in TARGETS}
    assert list(view.state_dict()) == list(module.state_dict())
    origin = origin_of(view)
    assert origin is not None
    assert (origin.base, origin.digest) == (module, digest_of("base"))
    assert origin_of(module) is None


def test_adapters_and_the_bare_base_interleave_without_touching_each_other(
    base: Instance, adapter: Callable[..., Adapter]
) -> None:
    instances = {
        "bare": base,
        "one": with_adapter(base, adapter(1), digest_of("one")),
        "two": with_adapter(base, adapter(2), digest_of("two")),
        "both": with_adapter(
            with_adapter(base, adapter(1), digest_of("one")),
            adapter(3, "text_encoder", ("encoder.layers.0.self_attn.q_proj",)),
            digest_of("text"),
        ),
    }
    expected = {name: alone(instance, request(name, 5)) for name, instance in instances.items()}
    assert len({tuple(sorted(one.items())) for one in expected.values()}) == len(instances)

    engine, tickets = Engine(), []
    for turn in range(3):
        for name, instance in instances.items():
            tickets.append((name, engine.submit(instance, request(name, 5))))
        for _ in range(turn):
            engine.step()
    while engine.step():
        pass
    for name, ticket in tickets:
        assert content(ticket.result()) == expected[name]
        assert ticket.result().weights == instances[name].weights
    assert {name: alone(instance, request(name, 5)) for name, instance in instances.items()} == expected


def test_calls_of_different_adapters_never_meet_and_those_of_one_may(
    base: Instance, adapter: Callable[..., Adapter]
) -> None:
    one, two = (with_adapter(base, adapter(seed), digest_of(str(seed))) for seed in (1, 2))
    calls = [_call(instance) for instance in (one, two, base, one)]
    assert calls[0] == calls[3]
    assert len({id(call.__self__) for call in calls[:3]}) == 3
    assert calls[0] != calls[1] != calls[2] != calls[0]


def test_shared_calls_keep_adapters_apart(
    base: Instance, adapter: Callable[..., Adapter], tmp_path: Path
) -> None:
    """Under a calibrated batcher: rows of one adapter share calls, those of different ones never."""
    ready = calibrate(base, most=8).prepare(base)
    assert ready.batcher.mode is Mode.BITWISE
    instances = {
        "bare": ready,
        "one": with_adapter(ready, adapter(1), digest_of("one")),
        "two": with_adapter(ready, adapter(2), digest_of("two")),
    }
    assert all(instance.batcher is ready.batcher for instance in instances.values())
    expected = {name: alone(instance, request("r", 5)) for name, instance in instances.items()}
    trace = Trace(tmp_path / "trace.json")
    engine = Engine(trace=trace)
    tickets = [
        (name, engine.submit(instance, request(f"{name} {turn}", 5)))
        for turn in range(3)
        for name, instance in instances.items()
    ]
    while engine.step():
        pass
    for name, ticket in tickets:
        assert content(ticket.result()) == expected[name]
    trace.close()
    events = json.loads(trace.path.read_text())
    calls = [event["args"]["steps"] for event in events if "steps" in event.get("args", {})]
    shared = [{step.partition(" ")[0] for step in steps} for steps in calls if len(steps) > 1]
    assert shared, "some calls were shared"
    assert all(len(names) == 1 for names in shared)


def _call(instance: Instance) -> Callable[..., object]:
    """What a request's first denoising step would call."""
    slots = {"request": checked_request(instance.card, instance.recipe, request("r"))}
    for node in instance.program.nodes:
        if node.name == "denoise":
            plan = node.loop.next(node.loop.init(slots))
            return plan.rows.call
        with torch.inference_mode():
            slots |= node.run(slots)
    raise AssertionError("no denoising")


@pytest.mark.parametrize(
    ("alpha", "metadata", "scale"),
    [
        (None, {}, 1.0),
        (1.0, {}, 0.5),
        (None, {"transformer.lora_alpha": 4}, 2.0),
        (None, {"transformer.lora_alpha": 4, "transformer.alpha_pattern": {TARGETS[0]: 1}}, 0.5),
        (None, {"transformer.lora_alpha": 4, "transformer.use_rslora": True}, 4 / 2**0.5),
        (1.0, {"transformer.lora_alpha": 4}, 0.5),
    ],
    ids=["rank", "tensor", "metadata", "pattern", "rooted", "tensor over metadata"],
)
def test_alpha_scales_the_change(
    base: Instance, tmp_path: Path, alpha: float | None, metadata: dict[str, object], scale: float
) -> None:
    tensors = lora_tensors(base, 1, targets=TARGETS[:1])
    stored = tensors if alpha is None else {**tensors, f"transformer.{TARGETS[0]}.alpha": torch.tensor(alpha)}
    file = write_lora(tmp_path / "lora", stored, {"lora_adapter_metadata": json.dumps(metadata)})
    module = base.components["transformer"]
    view = adapt(module, read_adapter([file], "transformer"))
    weight = module.get_parameter(f"{TARGETS[0]}.weight")
    expected = by_hand(weight, tensors, TARGETS[0], scale)
    assert view.get_parameter(f"{TARGETS[0]}.weight").equal(expected)


def test_half_precision_is_rounded_once(base: Instance, tmp_path: Path) -> None:
    tensors = {name: tensor.bfloat16() for name, tensor in lora_tensors(base, 1, targets=TARGETS[:1]).items()}
    half = copy.deepcopy(base.components["transformer"]).to(torch.bfloat16)
    view = adapt(half, read_adapter([write_lora(tmp_path / "lora", tensors)], "transformer"))
    exact = {name: tensor.float() for name, tensor in tensors.items()}
    expected = by_hand(half.get_parameter(f"{TARGETS[0]}.weight").float(), exact, TARGETS[0]).bfloat16()
    assert view.get_parameter(f"{TARGETS[0]}.weight").equal(expected)


A, B = f"transformer.{TARGETS[0]}.lora_A.weight", f"transformer.{TARGETS[0]}.lora_B.weight"


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"lora_unet_single_blocks_0.lora_down.weight": (2, 8)}, "named as other trainers do"),
        ({"transformer.x.lora.down.weight": (2, 8)}, "named as other trainers do"),
        ({"transformer.x_embedder.lora_magnitude_vector": (2,)}, "neither lora_A, lora_B nor alpha"),
        ({B: None}, f"adapter layer {TARGETS[0]} has {A} but no lora_B"),
        ({A: (3, 32)}, r"multiplies \[32, 2\] with \[3, 32\]"),
        ({A: None, B: None}, "the adapter changes nothing, not transformer"),
        (
            {"transformer.no.such.lora_A.weight": (2, 8), "transformer.no.such.lora_B.weight": (8, 2)},
            r"adapter tensor transformer.no.such.lora_A.weight has no counterpart no.such.weight",
        ),
        ({A: (2, 7)}, r"changes a weight \[32, 7\] where its base has \[32, 32\]"),
    ],
    ids=["kohya", "older diffusers", "dora", "half a layer", "ranks", "nothing", "no such layer", "shape"],
)
def test_what_cannot_be_applied_is_named(
    base: Instance, tmp_path: Path, change: dict[str, tuple[int, ...] | None], line: str
) -> None:
    tensors = lora_tensors(base, 1, targets=TARGETS[:1])
    for name, shape in change.items():
        tensors.pop(name, None)
        if shape is not None:
            tensors[name] = torch.zeros(shape)
    file = write_lora(tmp_path / "lora", tensors)
    with pytest.raises(InvalidAdapter, match=line) as caught:
        adapt(base.components["transformer"], read_adapter([file], "transformer"))
    assert "\n" not in str(caught.value)


def test_other_components_layers_and_kinds_are_named(
    base: Instance, adapter: Callable[..., Adapter], tmp_path: Path
) -> None:
    with pytest.raises(InvalidAdapter, match="the adapter changes transformer, not vae"):
        read_adapter([write_lora(tmp_path / "lora", lora_tensors(base, 1))], "vae")
    config = {"lora_adapter_metadata": json.dumps({"transformer.use_dora": True})}
    with pytest.raises(InvalidAdapter, match="sets use_dora=True: only plain LoRA is served"):
        read_adapter([write_lora(tmp_path / "dora", lora_tensors(base, 1), config)], "transformer")
    with pytest.raises(InvalidAdapter, match=r"shared is a \w*Embedding in its base: only linear layers"):
        adapt(base.components["text_encoder_2"], adapter(1, "text_encoder_2", ("shared",)))
