"""Node results kept by content: the same bytes, computed once, bounded, and dropped with their component."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from mutoscope.models.registry import get_card
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.example import example_request
from mutoscope.platform.engine.features import FeatureCache, FeatureStats, size_of
from mutoscope.platform.engine.instance import Instance, load_instance, with_components
from mutoscope.platform.engine.loop import WARNINGS, ComponentNode, Program
from mutoscope.platform.engine.request import Output, Request
from mutoscope.platform.ids import sha256
from tests.engine.toy import CARD, RECIPE, toy_request
from tests.support import tiny_flux, tiny_wan
from tests.support.interleaving import content
from tests.support.versions import digest_of, named, request

VALUE_BYTES = 4 * 256


class Encoder:
    """A node's code that counts its runs: a tensor of 1 KiB that holds the length of the prompt."""

    def __init__(self) -> None:
        self.runs = 0

    def __call__(self, slots: Mapping[str, Any]) -> dict[str, Any]:
        self.runs += 1
        prompt = slots["request"].parameters["prompt"]
        return {"cond": torch.full((256,), float(len(prompt))), WARNINGS: (f"{prompt} was read",)}


def instance_of(
    encoder: Encoder,
    weights: Mapping[str, str] | None = None,
    uses: tuple[str, ...] = ("text",),
    **node: Any,
) -> Instance:
    """A card of one node that encodes the prompt with its component `text`, and shows what came of it."""
    given = {"content": lambda slots: slots["request"].parameters["prompt"], **node}
    program = Program(
        nodes=(ComponentNode("encode", "text_encode", encoder, uses=uses, **given),),
        outputs=lambda slots: {
            "image": Output("image", np.zeros((1, 1, 3), np.uint8)),
            "latent": Output("latent", {"latents": slots["cond"].numpy()}),
        },
    )
    weights = {"text": digest_of("text"), "net": digest_of("net")} if weights is None else weights
    components = {"text": object(), "net": object()}
    return Instance(CARD, program, RECIPE, torch.device("cpu"), components=components, weights=weights)


def serve(cache: FeatureCache | None, instance: Instance, *prompts: str) -> list[Any]:
    engine = Engine(node_cache=cache)
    return [engine.run(instance, toy_request(prompt=prompt)) for prompt in prompts]


def test_equal_content_is_computed_once_and_its_warnings_are_told_each_time() -> None:
    encoder, cache = Encoder(), FeatureCache()
    results = serve(cache, instance_of(encoder), "red", "blue", "red", "red")
    assert encoder.runs == 2
    assert [result.warnings for result in results] == [
        (f"{prompt} was read",) for prompt in ("red", "blue", "red", "red")
    ]
    assert cache.stats == FeatureStats(
        hits=2, misses=2, evicted=0, entries=2, size=cache.stats.size, limit=cache.stats.limit
    )
    assert cache.stats.hit_rate == 0.5
    assert cache.stats.to_dict()["hit_rate"] == 0.5
    assert FeatureCache().stats.hit_rate is None


def test_without_a_cache_every_request_computes() -> None:
    encoder = Encoder()
    serve(None, instance_of(encoder), "red", "red")
    serve(FeatureCache(0), instance_of(encoder), "red", "red")
    assert encoder.runs == 4


@pytest.mark.parametrize(
    ("other", "shared"),
    [
        ({}, True),
        ({"weights": {"text": digest_of("text"), "net": digest_of("another")}}, True),
        ({"weights": {"text": digest_of("another"), "net": digest_of("net")}}, False),
        ({"uses": ("net",)}, False),
        ({"content": lambda slots: ("x", slots["request"].parameters["prompt"])}, False),
    ],
    ids=["nothing", "an unused component", "the used component", "other uses", "content"],
)
def test_instances_share_what_everything_that_decides_is_equal_for(
    other: dict[str, Any], shared: bool
) -> None:
    encoder, cache = Encoder(), FeatureCache()
    serve(cache, instance_of(encoder), "red")
    serve(cache, instance_of(encoder, **other), "red")
    assert encoder.runs == (1 if shared else 2)


def test_precision_and_code_decide_too() -> None:
    class Another(Encoder):
        pass

    encoder, cache = Encoder(), FeatureCache()
    one = instance_of(encoder)
    serve(cache, one, "red")
    serve(cache, replace(one, dtype=torch.bfloat16), "red")
    assert encoder.runs == 2
    another = Another()
    serve(cache, instance_of(another), "red")
    assert another.runs == 1
    wrapped = instance_of(encoder)
    node = replace(wrapped.program.nodes[0], run=partial(encoder.__call__))  # type: ignore[type-var]
    serve(cache, replace(wrapped, program=replace(wrapped.program, nodes=(node,))), "red")
    assert encoder.runs == 3


@pytest.mark.parametrize(
    ("weights", "node"),
    [({"net": digest_of("net")}, {}), ({}, {}), (None, {"content": None}), (None, {"uses": ()})],
    ids=["a component unknown", "all unknown", "no content", "no uses"],
)
def test_nothing_is_kept_of_which_nobody_can_tell_whether_it_still_holds(
    weights: dict[str, str] | None, node: dict[str, Any]
) -> None:
    encoder, cache = Encoder(), FeatureCache()
    serve(cache, instance_of(encoder, weights, **node), "red", "red")
    assert encoder.runs == 2
    assert (cache.stats.hits, cache.stats.misses, cache.stats.entries) == (0, 0, 0)


def test_the_bound_holds_and_what_was_used_last_stays() -> None:
    encoder, cache = Encoder(), FeatureCache(limit=2 * VALUE_BYTES + 100)
    serve(cache, instance_of(encoder), "a", "b", "a", "c", "a")
    assert encoder.runs == 3, "b made way for c, a was used since"
    stats = cache.stats
    assert (stats.entries, stats.evicted) == (2, 1)
    assert 2 * VALUE_BYTES <= stats.size <= stats.limit
    serve(cache, instance_of(encoder), "b")
    assert encoder.runs == 4


def test_what_is_larger_than_the_bound_is_not_kept_and_drives_nothing_out() -> None:
    encoder, cache = Encoder(), FeatureCache(limit=VALUE_BYTES - 1)
    serve(cache, instance_of(encoder), "a", "a")
    assert encoder.runs == 2
    assert cache.stats.size == 0


def test_forgetting_a_version_frees_what_used_it_alone() -> None:
    encoder, cache = Encoder(), FeatureCache()
    old = {"text": digest_of("old"), "net": digest_of("net")}
    serve(cache, instance_of(encoder), "a")
    serve(cache, instance_of(encoder, old), "a")
    size = cache.stats.size
    assert cache.forget("net", digest_of("net")) == 0
    assert cache.forget("net", digest_of("old")) == 0
    assert cache.forget("text", digest_of("old")) == size // 2
    serve(cache, instance_of(encoder), "a")
    assert encoder.runs == 2
    assert cache.clear() == cache.stats.to_dict()["bytes"] + size // 2
    assert cache.stats.entries == 0


@dataclass(frozen=True)
class Pair:
    one: torch.Tensor
    two: Any


def test_values_weigh_what_they_hold_on_to() -> None:
    tensor = torch.zeros(4, 8)
    assert size_of(tensor) == 128
    assert size_of(tensor[:1]) == 128, "a view keeps the whole memory alive"
    assert size_of({"a": tensor, "b": (tensor, [tensor[0]])}) == 128, "and shared memory counts once"
    assert size_of(Pair(tensor, np.zeros(3, np.uint8))) == 131
    array = np.zeros((4, 4), np.float32)
    assert size_of([array[0], array[1]]) == 64
    assert size_of((None, 1, 2.0, True, "four", b"five!")) == 9
    with pytest.raises(TypeError, match="a object cannot be weighed"):
        size_of({"a": object()})


# ---- real cards ----


@pytest.fixture(scope="module")
def flux(tmp_path_factory: pytest.TempPathFactory) -> Instance:
    return named(tiny_flux.save_tiny_flux(tmp_path_factory.mktemp("flux") / "folder"))


@pytest.fixture(scope="module")
def wan(tmp_path_factory: pytest.TempPathFactory) -> Instance:
    card = get_card("wan-i2v")
    folder = tiny_wan.make(tmp_path_factory.mktemp("wan") / "folder", card.id)
    names = card.inspect(folder).components
    return load_instance(card, folder, weights={name: sha256(name.encode()) for name in names})


def group(instance: Instance, samples: int) -> list[Request]:
    """The samples of a group: equal but for their seeds."""
    one = example_request(instance.card, instance.recipe)
    return [replace(one, id=f"r{seed}", seed=seed) for seed in range(samples)]


def counting(instance: Instance) -> tuple[Instance, dict[str, int]]:
    """The instance with nodes that count how often they run, by name."""
    runs: dict[str, int] = {}

    def counted(node: ComponentNode, slots: Mapping[str, Any]) -> Mapping[str, Any]:
        runs[node.name] = runs.get(node.name, 0) + 1
        return node.run(slots)

    nodes = tuple(
        replace(node, run=partial(counted, node)) if isinstance(node, ComponentNode) else node
        for node in instance.program.nodes
    )
    return replace(instance, program=replace(instance.program, nodes=nodes)), runs


@pytest.mark.parametrize("card", ["flux", "wan"])
def test_a_group_is_encoded_once_and_its_bytes_are_those_without_a_cache(
    card: str, request: pytest.FixtureRequest
) -> None:
    instance: Instance = request.getfixturevalue(card)
    samples = group(instance, 4)
    expected = {one.id: content(Engine().run(instance, one)) for one in samples}
    assert len({tuple(sorted(one.items())) for one in expected.values()}) == 4

    watched, runs = counting(instance)
    engine = Engine(node_cache=FeatureCache())
    tickets = [engine.submit(watched, one) for one in samples]
    while engine.step():
        pass
    again = engine.submit(watched, samples[0])
    while engine.step():
        pass
    assert {ticket.request_id: content(ticket.result()) for ticket in tickets} == expected
    assert content(again.result()) == expected[samples[0].id], "nobody has changed what is kept"
    kept = [node.name for node in instance.program.nodes if isinstance(node, ComponentNode) and node.content]
    assert "text_encode" in kept
    assert {name: runs[name] for name in kept} == dict.fromkeys(kept, 1)


def test_versions_that_share_the_encoders_share_their_features(flux: Instance) -> None:
    cache = FeatureCache()
    engine = Engine(node_cache=cache)
    retrained = with_components(flux, {}, {"transformer": digest_of("retrained")})
    for instance in (flux, retrained):
        engine.run(instance, request("r"))
    assert (cache.stats.misses, cache.stats.hits) == (1, 1)
    other = with_components(flux, {}, {"text_encoder": digest_of("retrained")})
    engine.run(other, request("r"))
    assert (cache.stats.misses, cache.stats.hits) == (2, 1)


@pytest.mark.parametrize(
    "parameters",
    [
        {"prompt": "a blue square"},
        {"negative_prompt": "a red cross"},
        {"max_sequence_length": 8},
        {"guidance_scale": 1.0},
    ],
    ids=lambda parameters: next(iter(parameters)),
)
def test_what_decides_the_text_features_is_in_their_content(
    flux: Instance, parameters: dict[str, Any]
) -> None:
    cache = FeatureCache()
    engine = Engine(node_cache=cache)
    asked = request("r", **parameters)
    engine.run(flux, request("r"))
    with_cache = content(engine.run(flux, asked))
    assert cache.stats.misses == 2
    assert with_cache == content(Engine().run(flux, asked)) != content(Engine().run(flux, request("r")))


def test_what_does_not_decide_them_is_not(flux: Instance) -> None:
    cache = FeatureCache()
    engine = Engine(node_cache=cache)
    for asked in (request("a"), request("b", 7), request("c", num_inference_steps=1), request("d", width=16)):
        engine.run(flux, asked)
    assert (cache.stats.misses, cache.stats.hits) == (1, 3)
