"""Weights by name: what a run pins, what a workflow hands on, and what is refused in a line."""

from __future__ import annotations

from uuid import UUID

import pytest
from prefect.client.orchestration import get_client

from mutoscope.models.registry import get_card
from mutoscope.platform.catalog import RunRecord, WeightVersion
from mutoscope.platform.errors import InvalidParameter, UnknownReference
from mutoscope.platform.orchestration import launch
from mutoscope.platform.orchestration.deployments import deploy_all
from mutoscope.platform.orchestration.engine_run import engine_run
from mutoscope.platform.orchestration.plan import plan_run
from mutoscope.platform.orchestration.registry import Registry
from mutoscope.platform.orchestration.runtime import Runtime
from mutoscope.platform.orchestration.selection import Weights, from_tags, pins_of, select, to_tags
from mutoscope.platform.orchestration.submit import submit_run
from mutoscope.platform.orchestration.workflow import workflow
from mutoscope.platform.refs import ArtifactRef
from tests.orchestration.conftest import RECIPE
from tests.support.fake_worker import FakeWorker, paint, publish_weights
from tests.support.tinycard.card import CARD

REGISTRY = Registry()


@pytest.fixture
def versions(runtime: Runtime) -> dict[int, WeightVersion]:
    """Three versions of the matrix, the third live, the second also `candidate`."""
    for salt in ("2", "3"):
        publish_weights(runtime, CARD, RECIPE, salt=salt)
    found = {version.ordinal: version for version in runtime.catalog.weights.list(CARD.id)}
    nets = {
        ordinal: runtime.catalog.weights.get(f"{CARD.id}/net@{ordinal}") for ordinal in found if ordinal < 4
    }
    runtime.catalog.weights.set_alias("candidate", nets[2])
    return nets


@pytest.mark.parametrize(
    ("weights", "ordinal"),
    [
        ((), 3),
        ({"net": "@1"}, 1),
        ({"net": "@candidate"}, 2),
        ({"net": "tiny-test/net@1"}, 1),
        ("@candidate", 2),
        ("tiny-test@candidate", 2),
        (["tiny-test/net@1"], 1),
        (["tiny-test@candidate", "tiny-test/net@1"], 1),
    ],
    ids=str,
)
def test_a_selection_is_what_the_run_pins(
    runtime: Runtime, versions: dict[int, WeightVersion], weights: Weights, ordinal: int
) -> None:
    spec = plan_run(runtime, CARD.id, {}, seed=1, weights=weights)
    recipe = runtime.catalog.weights.get("tiny-test/recipe@live")
    assert spec.weights == {"net": versions[ordinal].digest, "recipe": recipe.digest}
    assert spec.key_parts is not None
    assert spec.key_parts["weights"] == spec.weights


def test_the_version_is_the_key_whatever_its_name(
    runtime: Runtime, versions: dict[int, WeightVersion]
) -> None:
    by_number = plan_run(runtime, CARD.id, {}, seed=1, weights={"net": "@2"})
    by_alias = plan_run(runtime, CARD.id, {}, seed=1, weights="@candidate")
    live = plan_run(runtime, CARD.id, {}, seed=1)
    assert by_number.memo_key == by_alias.memo_key != live.memo_key
    assert live.memo_key == plan_run(runtime, CARD.id, {}, seed=1, weights={"net": "@live"}).memo_key


@pytest.mark.parametrize(
    ("weights", "error", "line"),
    [
        (
            {"net": "@9"},
            UnknownReference,
            r"no weights are named 'tiny-test/net@9': `mutoscope weights list`",
        ),
        ({"net": "@nope"}, UnknownReference, r"no weights are named 'tiny-test/net@nope'"),
        (
            "@nope",
            UnknownReference,
            r"no weights of tiny-test have the alias 'nope': `mutoscope weights list t",
        ),
        ({"vae": "@1"}, InvalidParameter, r"weights='vae=@1' is not valid: tiny-test has net, recipe"),
        (
            {"net": "flux-t2i/transformer@1"},
            InvalidParameter,
            r"weights='flux-t2i/transformer@1' is not valid: net of tiny-test takes a version of tiny-test/",
        ),
        ({"net": "tiny-test/recipe@1"}, InvalidParameter, r"takes a version of tiny-test/net$"),
        (
            {"net": "12"},
            InvalidParameter,
            r"weights='12' is not valid: write tiny-test/net@12, @12 or @alias",
        ),
        ("flux-t2i/transformer@1", InvalidParameter, r"write tiny-test/component@12, tiny-test@alias or @al"),
        ("net@1", InvalidParameter, r"write tiny-test/component@12"),
        ("candidate", InvalidParameter, r"write tiny-test/component@12"),
        ("tiny-test@", InvalidParameter, r"write tiny-test/component@12"),
        ("@1", InvalidParameter, r"a number is of one component: write tiny-test/component@1"),
        ("tiny-test/vae@1", InvalidParameter, r"tiny-test has net, recipe"),
    ],
    ids=str,
)
def test_what_cannot_be_pinned_is_a_line(
    runtime: Runtime, versions: dict[int, WeightVersion], weights: Weights, error: type[Exception], line: str
) -> None:
    with pytest.raises(error, match=line) as caught:
        select(runtime.catalog, CARD.id, weights)
    assert "\n" not in str(caught.value)


def test_a_card_without_live_weights_runs_on_selected_ones(
    runtime: Runtime, versions: dict[int, WeightVersion]
) -> None:
    runtime.catalog.weights.publish_all(CARD.id, {})
    assert runtime.catalog.weights.live(CARD.id) == {}
    spec = plan_run(runtime, CARD.id, {}, seed=1, weights=["tiny-test/net@1", "tiny-test/recipe@1"])
    assert spec.weights["net"] == versions[1].digest
    with pytest.raises(UnknownReference, match="card tiny-test has no recipe"):
        plan_run(runtime, CARD.id, {}, seed=1, weights=["tiny-test/net@1"])


def test_selections_for_several_cards_name_theirs(
    runtime: Runtime, versions: dict[int, WeightVersion]
) -> None:
    pins = pins_of(runtime.catalog, ["tiny-test/net@1"], [CARD.id, "flux-t2i"])
    assert pins == {CARD.id: {"net": versions[1].digest}}
    line = "name a version of a card that is run here: flux-t2i, tiny-test"
    for text in ("wan-i2v/transformer@1", "@candidate", "nonsense"):
        with pytest.raises(InvalidParameter, match=line):
            pins_of(runtime.catalog, [text], [CARD.id, "flux-t2i"])
    assert from_tags(["mutoscope", *to_tags(["a@1", "b@2"])]) == ["a@1", "b@2"]


def test_aliases_by_version(runtime: Runtime, versions: dict[int, WeightVersion]) -> None:
    recipe = runtime.catalog.weights.get("tiny-test/recipe@live")
    assert runtime.catalog.weights.aliases(CARD.id) == {
        str(versions[2]): ["candidate"],
        str(versions[3]): ["live"],
        str(recipe): ["live"],
    }
    runtime.catalog.weights.set_alias("candidate", versions[3])
    assert runtime.catalog.weights.aliases()[str(versions[3])] == ["candidate", "live"]
    assert runtime.catalog.weights.aliased(CARD.id, "candidate") == {"net": versions[3]}


def pinned(runtime: Runtime, run: RunRecord) -> str:
    return runtime.catalog.runs.weights(run.id)["net"]


def pinned_by_seed(runtime: Runtime) -> dict[int | None, str]:
    runs = [run for run in runtime.catalog.runs.list(card=CARD.id) if run.kind == "engine"]
    return {run.seed: pinned(runtime, run) for run in runs}


async def test_a_submitted_run_pins_them(
    runtime: Runtime, worker: FakeWorker, versions: dict[int, WeightVersion]
) -> None:
    outcome = await submit_run(CARD.id, seed=1, weights={"net": "@1"})
    assert pinned(runtime, outcome.run) == versions[1].digest
    await engine_run(CARD.id, seed=2, weights="@candidate")
    assert pinned(runtime, runtime.catalog.runs.list()[0]) == versions[2].digest


# ---- workflows ----


@workflow("test.pins_inner", requires=["tiny-test"], registry=REGISTRY)
async def pins_inner(seed: int) -> ArtifactRef:
    return (await engine_run("tiny-test", seed=seed))["image"]


@workflow("test.pins_outer", requires=["tiny-test", "test.pins_inner"], registry=REGISTRY)
async def pins_outer(seed: int) -> dict[str, ArtifactRef]:
    """Seed s in a workflow inside, s + 1 here, s + 2 with weights of its own."""
    inner = await pins_inner(seed=seed)
    own = await engine_run("tiny-test", seed=seed + 1)
    selected = await engine_run("tiny-test", seed=seed + 2, weights={"net": "@1"})
    return {"inner": inner, "own": own["image"], "selected": selected["image"]}


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "discover", lambda: REGISTRY)


@pytest.mark.usefixtures("prefect_server", "known")
async def test_a_workflow_hands_its_weights_to_all_its_runs(
    runtime: Runtime, worker: FakeWorker, versions: dict[int, WeightVersion]
) -> None:
    await launch.run_workflow("pins_outer", {"seed": 0}, weights=["tiny-test@candidate"])
    runs = pinned_by_seed(runtime)
    assert runs == {0: versions[2].digest, 1: versions[2].digest, 2: versions[1].digest}
    await launch.run_workflow("pins_inner", {"seed": 5})
    runs = pinned_by_seed(runtime)
    assert runs[5] == versions[3].digest, "and the next one is back at the live ones"


@pytest.mark.usefixtures("prefect_server", "known")
async def test_an_alias_that_moves_does_not_change_a_workflow_under_way(
    runtime: Runtime, versions: dict[int, WeightVersion]
) -> None:
    def move(runtime: Runtime, run: RunRecord) -> dict[str, ArtifactRef]:
        runtime.catalog.weights.set_alias("candidate", versions[3])
        return paint(runtime, run)

    with FakeWorker(runtime, (CARD.id,), perform=move).serving():
        await launch.run_workflow("pins_outer", {"seed": 0}, weights=["tiny-test@candidate"])
    runs = pinned_by_seed(runtime)
    assert (runs[0], runs[1]) == (versions[2].digest, versions[2].digest)


@pytest.mark.usefixtures("prefect_server", "known")
async def test_a_queued_workflow_carries_them_as_tags(
    runtime: Runtime, worker: FakeWorker, versions: dict[int, WeightVersion]
) -> None:
    await deploy_all(REGISTRY)
    flow_run_id = await launch.submit_workflow("pins_inner", {"seed": 8}, weights=["tiny-test/net@1"])
    async with get_client() as client:
        flow_run = await client.read_flow_run(UUID(flow_run_id))
    assert "weights=tiny-test/net@1" in flow_run.tags
    assert "mutoscope" in flow_run.tags


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize(
    ("text", "error", "line"),
    [
        ("tiny-test/net@9", UnknownReference, "no weights are named 'tiny-test/net@9'"),
        ("wan-i2v/vae@1", InvalidParameter, "name a version of a card that is run here: tiny-test"),
    ],
)
def test_a_workflow_is_not_started_with_weights_that_are_not_there(
    runtime: Runtime, versions: dict[int, WeightVersion], text: str, error: type[Exception], line: str
) -> None:
    with pytest.raises(error, match=line):
        launch.find_workflow("pins_outer", {"seed": 0}, [text])
    assert runtime.catalog.workflows.list() == []


class TestTrainers:
    """A trainer runs the weights of the card that it trains, under that card's names."""

    TRAINER = "flux-t2i-trainer"

    @pytest.fixture
    def given(self, runtime: Runtime) -> dict[str, object]:
        """What a training step takes at least."""
        recipe = get_card("flux-t2i").recipe(
            height=64, width=64, num_inference_steps=4, guidance_scale=1.0, max_sequence_length=8
        )
        for salt in ("1", "2"):
            publish_weights(runtime, get_card("flux-t2i"), recipe, salt=salt)
        ref = runtime.store.put(b"{}", kind="json", media_type="application/json")
        runtime.catalog.artifacts.record(ref)
        return {"rollouts": [ref], "component": "transformer", "method": "nft"}

    def test_its_live_weights_are_its_cards(self, runtime: Runtime, given: dict[str, object]) -> None:
        spec = plan_run(runtime, self.TRAINER, given, seed=1)
        live = runtime.catalog.weights.live("flux-t2i")
        assert spec.kind == "train_step"
        assert spec.weights == {name: version.digest for name, version in live.items()}

    @pytest.mark.parametrize("weights", [{"transformer": "@1"}, "flux-t2i/transformer@1"], ids=str)
    def test_versions_go_by_its_cards_names(
        self, runtime: Runtime, given: dict[str, object], weights: Weights
    ) -> None:
        spec = plan_run(runtime, self.TRAINER, given, seed=1, weights=weights)
        first = runtime.catalog.weights.get("flux-t2i/transformer@1")
        assert spec.weights["transformer"] == first.digest
        assert spec.weights["vae"] == runtime.catalog.weights.get("flux-t2i/vae@live").digest

    def test_a_workflows_pins_are_its_too(self, runtime: Runtime, given: dict[str, object]) -> None:
        pins = pins_of(runtime.catalog, ["flux-t2i/transformer@1"], [self.TRAINER])
        spec = plan_run(runtime, self.TRAINER, given, seed=1, pins=pins)
        first = runtime.catalog.weights.get("flux-t2i/transformer@1")
        assert spec.weights["transformer"] == first.digest

    def test_its_own_name_is_no_weights(self, runtime: Runtime, given: dict[str, object]) -> None:
        with pytest.raises(InvalidParameter, match="write flux-t2i/component@12, flux-t2i@alias or @alias"):
            plan_run(runtime, self.TRAINER, given, seed=1, weights=f"{self.TRAINER}@live")
