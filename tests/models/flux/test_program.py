"""The FLUX card on the engine: interleaving, progress, sizes, and the program's own arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import FluxPipeline
from diffusers.image_processor import VaeImageProcessor

from mutoscope.models.flux.card import CARD
from mutoscope.models.flux.denoise import Denoise, DenoiseState
from mutoscope.models.flux.layout import image_ids, pack, unpack
from mutoscope.models.flux.program import to_pixels
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.instance import Instance
from mutoscope.platform.engine.request import Progress, Request
from mutoscope.platform.errors import InvalidParameter
from tests.support.interleaving import content, orders_that_differ, serve_together


def request(name: str, *, seed: int = 1, **parameters: Any) -> Request:
    return Request(name, CARD.id, {}, {"prompt": "a red circle", **parameters}, seed)


REQUESTS = [request("a"), request("b"), request("c", seed=2, prompt="a blue cross", guidance_scale=1.0)]


def test_interleaved_equals_serial_in_every_order(instance: Callable[[str], Instance]) -> None:
    assert orders_that_differ(instance("shift 3"), REQUESTS) == []


def test_equal_requests_agree_and_others_differ(instance: Callable[[str], Instance]) -> None:
    served = serve_together(instance("shift 3"), REQUESTS)
    assert served["a"] == served["b"]
    assert served["a"]["latent.latents"] != served["c"]["latent.latents"]
    assert served["a"]["image"] != served["c"]["image"]


def test_control_a_generator_that_requests_share_is_caught(
    instance: Callable[[str], Instance], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Noise added at each step from the global generator is right alone and wrong together."""
    init, predict = Denoise.init, Denoise.predict

    def seeded_init(self: Denoise, slots: Mapping[str, Any]) -> DenoiseState:
        torch.manual_seed(slots["request"].seed)
        return init(self, slots)

    def noisy_predict(self: Denoise, rows: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return predict(self, rows) + torch.randn(rows["latents_BLK"].shape)

    monkeypatch.setattr(Denoise, "init", seeded_init)
    monkeypatch.setattr(Denoise, "predict", noisy_predict)
    assert orders_that_differ(instance("shift 3"), REQUESTS) != []


def test_progress_and_shapes(instance: Callable[[str], Instance]) -> None:
    seen: list[Progress] = []
    asked = request("r", height=16, width=32, num_inference_steps=3)
    result = Engine().run(instance("plain"), asked, seen.append)
    assert [(at.stage, at.step, at.total) for at in seen] == [
        ("text_encode", 1, 5),
        ("denoise", 2, 5),
        ("denoise", 3, 5),
        ("denoise", 4, 5),
        ("vae_decode", 5, 5),
    ]
    image, latents = result.outputs["image"], result.outputs["latent"].value["latents"]
    assert (image.kind, image.value.dtype, image.value.shape) == ("image", np.uint8, (16, 32, 3))
    assert (latents.dtype, latents.shape) == (np.float32, (1, 16 * 32 // 4**2, 16))


def test_guidance_costs_two_passes(instance: Callable[[str], Instance]) -> None:
    """A guided step counts double, so the unguided request gets two turns for each of the other's."""
    engine, turns = Engine(clock=lambda: 0.0), []  # nothing is measured: steps cost what they declare
    for name, scale in (("g", 3.0), ("u", 1.0)):
        asked = request(name, guidance_scale=scale, num_inference_steps=4)
        engine.submit(instance("plain"), asked, lambda at: turns.append((at.request_id, at.stage)))
    while engine.step():
        pass
    steps = "".join(name for name, stage in turns if stage == "denoise")
    assert steps == "guuguugg"


def test_a_size_the_vae_cannot_make(instance: Callable[[str], Instance]) -> None:
    with pytest.raises(InvalidParameter, match="height=18 is not valid: use a multiple of 4"):
        Engine().submit(instance("plain"), request("r", height=18))


def test_long_prompts_are_cut_as_the_encoders_require_and_it_is_said(
    instance: Callable[[str], Instance],
) -> None:
    """Twelve tokens are read, the closing one among them; here by both encoders, of both prompts."""
    results = [
        Engine().run(instance("plain"), request("r", prompt="red " * count, negative_prompt="blue " * 12))
        for count in (11, 40)
    ]
    assert content(results[0]) == content(results[1])
    readers = ("the CLIP text encoder", "the T5 text encoder")
    negative = [
        f"negative_prompt has 13 tokens; {reader} reads 12: the last 1 was cut: 'blue'" for reader in readers
    ]
    assert list(results[0].warnings) == negative
    cut = f"{'red ' * 12}…"
    assert list(results[1].warnings) == [
        *(f"prompt has 41 tokens; {reader} reads 12: the last 29 were cut: '{cut}'" for reader in readers),
        *negative,
    ]


def test_extent_is_the_number_of_image_tokens(instance: Callable[[str], Instance]) -> None:
    """A token is 4 x 4 pixels: two of the VAE's factor, two of the patch."""
    sized = CARD.resolve({"prompt": "a", "height": 16, "width": 32}, instance("plain").recipe)
    assert instance("plain").program.extent(Request("r", CARD.id, {}, sized, 0)) == 4 * 8


def test_packing_equals_the_pipelines() -> None:
    latents = torch.randn(1, 4, 6, 8, generator=torch.Generator().manual_seed(0))
    packed = pack(latents)
    assert torch.equal(packed, FluxPipeline._pack_latents(latents, 1, 4, 6, 8))
    assert torch.equal(unpack(packed, 6, 8), latents)


def test_image_ids_equal_the_pipelines() -> None:
    expected = FluxPipeline._prepare_latent_image_ids(1, 3, 5, torch.device("cpu"), torch.float32)
    assert torch.equal(image_ids(3, 5), expected)


def test_pixels_equal_the_image_processors() -> None:
    signal = torch.linspace(-1.2, 1.2, 3 * 64 * 64).reshape(1, 3, 64, 64)
    expected = VaeImageProcessor().postprocess(signal, output_type="pil")[0]
    np.testing.assert_array_equal(to_pixels(signal)[0], np.asarray(expected))
