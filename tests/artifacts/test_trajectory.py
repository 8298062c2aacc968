"""Trajectories: a group in one object, of which one step can be read, and every read verified."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load

from mutoscope.platform.artifacts import ArtifactRef, ArtifactStore, codecs
from mutoscope.platform.artifacts.trajectories import OpenTrajectory, open_trajectory
from mutoscope.platform.errors import ArtifactCorrupt, ArtifactMissing, InvalidParameter
from mutoscope.platform.ids import new_id
from mutoscope.platform.trajectory import TrajectoryFacts, TrajectoryGroup, TrajectorySample
from tests.support.counting import counting

FACTS = TrajectoryFacts(
    seeds=(7, 8, 9),
    sigmas=(1.0, 0.9, 0.75, 0.5, 0.25, 0.0),
    law="flow-sde",
    window=(1, 3),
    weights={"transformer": "a" * 64, "text_encoder": "b" * 64},
    prompt_embedding="c" * 64,
    law_parameters={"a": 0.7},
)
LEVELS = (1, 2, 3, 5)
SHAPE = (16, 32, 32)


def a_sample(seed: int) -> TrajectorySample:
    generator = np.random.default_rng(seed)
    latents = {level: generator.standard_normal(SHAPE).astype(np.float32) for level in LEVELS}
    return TrajectorySample(latents, generator.standard_normal(2).astype(np.float32))


def a_group(facts: TrajectoryFacts = FACTS) -> TrajectoryGroup:
    return TrajectoryGroup(facts, tuple(a_sample(seed) for seed in facts.seeds))


def put(store: ArtifactStore, group: TrajectoryGroup) -> ArtifactRef:
    encoded = codecs.encode("trajectory", group)
    return store.put(encoded.data, kind="trajectory", media_type=encoded.media_type, meta=encoded.meta)


def assert_equal(one: TrajectoryGroup, two: TrajectoryGroup) -> None:
    assert one.facts == two.facts
    for ours, theirs in zip(one.samples, two.samples, strict=True):
        assert set(ours.latents) == set(theirs.latents)
        assert all(np.array_equal(ours.latents[level], theirs.latents[level]) for level in ours.latents)
        assert np.array_equal(ours.log_probs_W, theirs.log_probs_W)


def test_a_group_comes_back(store: ArtifactStore) -> None:
    ref = put(store, a_group())
    decoded = codecs.decode(ref.kind, store.get(ref.digest), ref.media_type)
    assert_equal(decoded, a_group())
    assert ref.meta == {"samples": 3, "levels": 4, "shape": [16, 32, 32]}
    assert ref.file_name.endswith(".safetensors")


def test_equal_groups_are_equal_bytes() -> None:
    facts = replace(
        FACTS,
        weights=dict(reversed(FACTS.weights.items())),
        sigmas=list(FACTS.sigmas),  # type: ignore[arg-type]
    )
    samples = tuple(
        TrajectorySample(
            {level: np.asfortranarray(a_sample(seed).latents[level]) for level in reversed(LEVELS)},
            a_sample(seed).log_probs_W,
        )
        for seed in FACTS.seeds
    )
    other = codecs.encode("trajectory", TrajectoryGroup(facts, samples))
    assert other.data == codecs.encode("trajectory", a_group()).data


@pytest.mark.parametrize(
    "change",
    [
        {"seeds": (7, 8, 10)},
        {"sigmas": (1.0, 0.9, 0.75, 0.5, 0.25, 0.125)},
        {"law": "cps"},
        {"weights": {**FACTS.weights, "transformer": "d" * 64}},
        {"prompt_embedding": "d" * 64},
        {"law_parameters": {"a": 0.8}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_every_fact_counts(change: dict[str, Any]) -> None:
    samples = a_group().samples
    changed = codecs.encode("trajectory", TrajectoryGroup(replace(FACTS, **change), samples))
    assert changed.data != codecs.encode("trajectory", a_group()).data


def test_any_safetensors_reader_opens_it() -> None:
    arrays = load(codecs.encode("trajectory", a_group()).data)
    assert set(arrays) == {
        *(f"sample.{i:04}/latent.{level:04}" for i, level in itertools.product(range(3), LEVELS)),
        *(f"sample.{i:04}/log_probs" for i in range(3)),
    }
    assert np.array_equal(arrays["sample.0001/latent.0002"], a_sample(8).latents[2])


def test_an_ode_group_has_no_window_and_no_log_probabilities(store: ArtifactStore) -> None:
    facts = replace(FACTS, law="ode", window=(0, 0), law_parameters={})
    empty = np.zeros(0, np.float32)
    last = tuple(TrajectorySample({5: a_sample(seed).latents[5]}, empty) for seed in FACTS.seeds)
    opened = open_trajectory(store, put(store, TrajectoryGroup(facts, last)).digest)
    assert opened.levels(0) == (5,)
    assert opened.log_probs(2).shape == (0,)


def test_one_step_is_read_without_the_others(store: ArtifactStore) -> None:
    ref = put(store, a_group())
    counted, backend = counting(store)
    opened = open_trajectory(counted, ref.digest)
    assert opened.facts == FACTS
    assert [opened.levels(sample) for sample in range(3)] == [LEVELS] * 3
    assert backend.names("read", "read_range", "open") == [ref.digest], "the header, in one request"
    ranges = noted_ranges(counted)
    assert np.array_equal(opened.latent(1, 3), a_sample(8).latents[3])
    assert np.array_equal(opened.log_probs(2), a_sample(9).log_probs_W)
    assert [length for _, length in ranges] == [16 * 32 * 32 * 4, 2 * 4]
    assert backend.names("read", "open") == [], "never the whole"


def noted_ranges(store: ArtifactStore) -> list[tuple[int, int]]:
    """The ranges that are read from now on."""
    noted: list[tuple[int, int]] = []
    original = store._backend.read_range

    def read_range(name: str, start: int, length: int) -> bytes:
        noted.append((start, length))
        return original(name, start, length)

    store._backend.read_range = read_range  # type: ignore[method-assign]
    return noted


def test_a_header_longer_than_the_first_read_is_read_on(store: ArtifactStore) -> None:
    facts = replace(FACTS, seeds=tuple(range(150)))
    shape = (2, 2)
    samples = tuple(
        TrajectorySample(
            {level: np.full(shape, seed, np.float32) for level in LEVELS}, np.zeros(2, np.float32)
        )
        for seed in facts.seeds
    )
    ref = put(store, TrajectoryGroup(facts, samples))
    assert int.from_bytes(store.read_range(ref.digest, 0, 8), "little") > 64 << 10
    assert open_trajectory(store, ref.digest).latent(149, 3).tolist() == [[149, 149], [149, 149]]


def test_every_flipped_byte_is_found() -> None:
    store = ArtifactStore.open(f"memory://{new_id()}")
    group = TrajectoryGroup(
        replace(FACTS, seeds=(7,)),
        (TrajectorySample({level: np.ones((1, 2), np.float32) for level in LEVELS}, np.ones(2, np.float32)),),
    )
    data = codecs.encode("trajectory", group).data
    padding = len(data[: data.rindex(b"}") + 1])
    tensors = 8 + int.from_bytes(data[:8], "little")
    for position in (*range(padding), *range(tensors, len(data))):
        flipped = bytearray(data)
        flipped[position] ^= 1
        ref = store.put(bytes(flipped), kind="trajectory", media_type="application/x")
        with pytest.raises(ArtifactCorrupt, match="replay the run"):
            read_all(open_trajectory(store, ref.digest))


def read_all(opened: OpenTrajectory) -> None:
    for sample in range(len(opened.facts.seeds)):
        opened.log_probs(sample)
        for level in LEVELS:
            opened.latent(sample, level)


def test_what_was_not_captured_is_named(store: ArtifactStore) -> None:
    opened = open_trajectory(store, put(store, a_group()).digest)
    with pytest.raises(InvalidParameter, match=r"latent\.0004.*was not captured"):
        opened.latent(0, 4)
    with pytest.raises(InvalidParameter, match=r"sample\.0003.*3 samples"):
        opened.log_probs(3)


def test_anything_else_is_no_trajectory(store: ArtifactStore) -> None:
    other = codecs.encode("latent", np.ones(3, np.float32))
    for data in (b"", b"x" * 100, other.data):
        ref = store.put(data, kind="trajectory", media_type="application/x")
        with pytest.raises(ArtifactCorrupt, match="is damaged or none"):
            open_trajectory(store, ref.digest)
        with pytest.raises(InvalidParameter, match="use a whole file"):
            codecs.decode("trajectory", data, "application/vnd.mutoscope.trajectory")
    with pytest.raises(ArtifactMissing):
        open_trajectory(store, "0" * 64)
    with pytest.raises(InvalidParameter, match="use a TrajectoryGroup"):
        codecs.encode("trajectory", {"latents": np.ones(3)})


def with_latent(array: Any) -> Callable[[], object]:
    return lambda: TrajectoryGroup(
        replace(FACTS, seeds=(7,)),
        (TrajectorySample({**a_sample(7).latents, 2: array}, a_sample(7).log_probs_W),),
    )


def with_facts(**change: Any) -> Callable[[], object]:
    return lambda: replace(FACTS, **change)


WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "bfloat16's stand-in": (with_latent(np.ones(SHAPE, np.float16)), r"samples\[0\]\.latents\[2\]=.*float32"),
    "a number that is none": (with_latent(np.full(SHAPE, np.nan, np.float32)), r"latents\[2\]=.*non-finite"),
    "another shape": (with_latent(np.ones((1,), np.float32)), "latents=.*one shape"),
    "no array": (with_latent([1.0]), r"latents\[2\]="),
    "a sample too few": (lambda: TrajectoryGroup(FACTS, (a_sample(7),)), "samples=1 .*3 seeds"),
    "a level of the window missing": (
        lambda: TrajectoryGroup(
            replace(FACTS, seeds=(7,)),
            (
                TrajectorySample(
                    {1: a_sample(7).latents[1], 3: a_sample(7).latents[3]}, a_sample(7).log_probs_W
                ),
            ),
        ),
        "level 2 is missing",
    ),
    "a level beyond the schedule": (
        lambda: TrajectoryGroup(
            replace(FACTS, seeds=(7,)),
            (TrajectorySample({**a_sample(7).latents, 6: a_sample(7).latents[1]}, a_sample(7).log_probs_W),),
        ),
        "use levels from 0 to 5",
    ),
    "too many log-probabilities": (
        lambda: TrajectoryGroup(
            replace(FACTS, seeds=(7,)), (TrajectorySample(a_sample(7).latents, np.ones(3, np.float32)),)
        ),
        r"log_probs_W=\[3\] .*2 steps",
    ),
    "no samples": (with_facts(seeds=()), "^seeds="),
    "a seed out of range": (with_facts(seeds=(2**63,)), "^seeds="),
    "a rising schedule": (with_facts(sigmas=(0.0, 0.5, 1.0)), "^sigmas="),
    "a level above one": (with_facts(sigmas=(1.5, 0.5, 0.0)), "^sigmas="),
    "a window beyond the schedule": (with_facts(window=(3, 6)), "^window="),
    "a window under the ODE": (with_facts(law="ode"), "^window="),
    "no window under the SDE": (with_facts(window=(2, 2)), "^window="),
    "an unknown law": (with_facts(law="magic"), "^law="),
    "no weights": (with_facts(weights={}), "^weights="),
    "a version in place of a digest": (with_facts(weights={"net": "flux-t2i/net@1"}), "^net="),
    "no embedding": (with_facts(prompt_embedding=""), "^prompt_embedding="),
    "a scale that is no number": (with_facts(law_parameters={"a": float("inf")}), "^law_parameters="),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_group_that_could_not_train_is_refused(what: str) -> None:
    make, reason = WRONG[what]
    with pytest.raises(InvalidParameter, match=reason):
        make()
