"""LoRA as the thing that is trained: what is served is what was trained, to the last bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load

from mutoscope.platform.engine import numerics
from mutoscope.platform.engine.adapters import adapt, read_adapter
from mutoscope.platform.engine.instance import Instance
from mutoscope.platform.errors import InvalidParameter
from mutoscope.platform.training.learner import ADAPTER_FILE
from mutoscope.platform.training.trainable import FullWeights, Lora
from tests.support.training import Rollouts, advanced, collect, starter, train

PROMPTS = ["a red circle left of a blue square"]
ASKED: dict[str, Any] = {"method": "flow-grpo", "clip_range": 1e-2, "lora_rank": 3, "learning_rate": 1e-3}


@pytest.fixture(scope="module", autouse=True)
def contract() -> None:
    numerics.configure_torch(numerics.cpu_contract(threads=1))


@pytest.fixture(scope="module")
def served() -> Instance:
    return starter("flux-t2i")


@pytest.fixture(scope="module")
def given(served: Instance) -> Rollouts:
    return collect(served, PROMPTS, [1.0, 0.0, 0.5], num_inference_steps=4)


def adapter(made: Any, folder: Path) -> Path:
    path = folder / ADAPTER_FILE
    path.write_bytes(made["weights"].value[ADAPTER_FILE])
    return path


def test_it_is_an_adapter_as_diffusers_names_them(served: Instance, given: Rollouts, tmp_path: Path) -> None:
    from diffusers import FluxPipeline

    made = train(served, given, lora_alpha=6, **ASKED)
    assert made["weights"].meta == {"component": "transformer", "base": served.weights["transformer"]}
    path = adapter(made, tmp_path)
    tensors = load(path.read_bytes())
    layers = {name.partition(".lora_")[0] for name in tensors if ".lora_" in name}
    assert all(name.startswith("transformer.") for name in tensors)
    assert "transformer.transformer_blocks.0.attn.to_q" in layers
    assert any(tensors[f"{layer}.lora_B.weight"].any() for layer in layers)
    assert {float(tensors[f"{layer}.alpha"]) for layer in layers} == {6.0}
    read = FluxPipeline.lora_state_dict(path)
    assert {f"{layer}.lora_A.weight" for layer in layers} <= set(read)


def test_what_is_served_is_what_was_trained(served: Instance, given: Rollouts, tmp_path: Path) -> None:
    """The module that learned holds, after its last step, what `adapt` makes of the file that it left."""
    learnt: list[Lora] = []
    made = _watched(learnt, served, given, epochs=2)
    changes = read_adapter([adapter(made, tmp_path)], "transformer")
    view = adapt(served.components["transformer"], changes)
    trained = learnt[0].module.state_dict()
    moved = 0
    for name, tensor in view.state_dict().items():
        assert torch.equal(tensor, trained[name])
        moved += not torch.equal(tensor, served.components["transformer"].state_dict()[name])
    assert moved == len(changes.changes)


def _watched(learnt: list[Lora], served: Instance, given: Rollouts, **asked: Any) -> Any:
    original = Lora.over.__func__  # type: ignore[attr-defined]

    def over(cls: type[Lora], *args: Any, **kwargs: Any) -> Lora:
        learnt.append(original(cls, *args, **kwargs))
        return learnt[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Lora, "over", classmethod(over))
        return train(served, given, **{**ASKED, **asked})


def test_its_gradient_is_that_of_the_product(served: Instance) -> None:
    """∂L/∂A = s·Bᵀ·∂L/∂W and ∂L/∂B = s·∂L/∂W·Aᵀ, against autograd through W + s·BA."""
    base = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.Linear(4, 3)).requires_grad_(False)
    lora = Lora.over(base, "net", rank=2, alpha=3.0, targets=("0",), seed=1)
    lora.hold({name: torch.randn_like(leaf) for name, leaf in lora.leaves.items()})
    x = torch.randn(6, 5)
    for part in (x[:2], x[2:]):  # accumulated over two passes
        lora.module(part).square().sum().backward()

    down, up = (lora.leaves[f"0.lora_{matrix}.weight"].clone().requires_grad_() for matrix in "AB")
    weight = base[0].weight + 1.5 * (up @ down)
    hidden = torch.nn.functional.linear(x, weight, base[0].bias)
    base[1](hidden).square().sum().backward()
    assert down.grad is not None
    assert up.grad is not None
    assert torch.allclose(lora.gradients["0.lora_A.weight"], down.grad, atol=1e-4)
    assert torch.allclose(lora.gradients["0.lora_B.weight"], up.grad, atol=1e-4)
    assert base[0].weight.grad is None


def test_it_begins_as_its_base(served: Instance, given: Rollouts) -> None:
    first = train(served, given, **ASKED)["metrics"].value["curve"][0]
    assert first["delta_log_p"] < 1e-5
    assert first["grad_norm"] > 0


def test_it_goes_on_only_over_its_own_base(served: Instance, given: Rollouts) -> None:
    made = train(served, given, **ASKED)
    state = made["state"].value
    late = {"staleness": [1], "max_staleness": 1}
    with pytest.raises(InvalidParameter, match="it belongs to other weights than the pinned ones"):
        train(served, given, state=state, **late, **ASKED)
    with pytest.raises(InvalidParameter, match=r"it is of a training with lora=True"):
        train(served, given, state=state, **late, **{**ASKED, "lora_rank": None})
    with pytest.raises(InvalidParameter, match="of other layers or of another rank"):
        train(advanced(served, made["weights"], 1), given, state=state, **late, **{**ASKED, "lora_rank": 2})
    with pytest.raises(InvalidParameter, match="the pinned weights are a LoRA: set lora_rank"):
        train(advanced(served, made["weights"], 1), given, **late, **{**ASKED, "lora_rank": None})


def test_a_fresh_one_may_lie_over_another(served: Instance, given: Rollouts) -> None:
    below = advanced(served, train(served, given, **ASKED)["weights"], 1)
    made = train(below, given, staleness=[1], max_staleness=1, **ASKED)
    assert made["weights"].meta["base"] == below.weights["transformer"]


def test_layers_are_chosen_by_how_their_names_end(served: Instance, given: Rollouts) -> None:
    made = train(served, given, lora_targets=["ff.net.2"], **ASKED)
    names = load(made["weights"].value[ADAPTER_FILE])
    assert {name.partition(".lora_")[0].rpartition(".ff.")[2] for name in names if ".lora_" in name} == {
        "net.2"
    }
    with pytest.raises(InvalidParameter, match="no linear layer of transformer has a name that ends so"):
        train(served, given, lora_targets=["nonesuch"], **ASKED)


def test_full_weights_are_every_parameter_once() -> None:
    """Tied weights are one leaf, which goes by both names."""
    tied = torch.nn.Module()
    tied.one, tied.two = torch.nn.Linear(3, 3, bias=False), torch.nn.Linear(3, 3, bias=False)
    tied.two.weight = tied.one.weight
    tied.requires_grad_(False)
    full = FullWeights.of(tied)
    assert list(full.leaves) == ["one.weight"]
    assert full.changed(tied, full.leaves) == {}
    full.hold({"one.weight": torch.ones(3, 3)})
    assert set(full.changed(tied, full.leaves)) == {"one.weight"}
    assert full.tied() == {"one.weight": ["two.weight"]}
    x = torch.ones(1, 3)
    full.module.two(full.module.one(x)).sum().backward()
    assert full.gradients["one.weight"].abs().sum() > 0
    assert torch.equal(full.module.one.weight, torch.ones(3, 3))
