"""Large made-up catalogs: a reinforcement-learning history, a deep chain, a wide fan. No bytes exist.

    history   weights@0 ─▶ rollouts ─▶ images ─▶ rewards ─▶ train step ─▶ weights@1 ─▶ …
    chain     v0 ─▶ run ─▶ v1 ─▶ run ─▶ v2 …
    fan       weights ─▶ a run per image ─▶ images ─▶ one run that uses them all ─▶ next weights

Everything is recorded through `Catalog.bulk`, so these are what a user's own import would be.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice, pairwise

from mutoscope.platform.catalog import ArtifactRow, Catalog, Edge, RunRecord
from mutoscope.platform.ids import new_id, sha256
from mutoscope.platform.refs import ArtifactRef
from tests.support.records import CODE, CONTRACT, an_artifact

CARD = "flux-t2i"
START = 1.7e9
"""Seconds since the epoch at which the made-up histories begin."""

_FROZEN = {name: an_artifact(f"{CARD} {name}", "weights") for name in ("vae", "text_encoder")}
_SCORER = an_artifact("scorer", "weights")


@dataclass(frozen=True, slots=True)
class Shape:
    """Of a history. A sample is an image, latent, trajectory and reward (4 artifacts, 2 runs, 12 edges)."""

    steps: int
    prompts: int = 75
    samples: int = 8


MILLION = Shape(steps=417)
"""1.03 M artifacts, 0.5 M runs and 3.0 M edges; each step adds about 3,000 nodes to a version's closure."""


@dataclass(slots=True)
class History:
    """What was recorded, as far as questions about it need to know.

    Attributes:
        versions: digests of the transformer's weights, oldest first.
        images: digests of the first images of each step.
        memo_keys: of the same rollouts.
    """

    versions: list[str]
    images: list[str] = field(default_factory=list)
    memo_keys: list[str] = field(default_factory=list)
    artifacts: int = 0
    runs: int = 0
    edges: int = 0


@dataclass(slots=True)
class Rows:
    """Rows to be recorded together."""

    artifacts: list[ArtifactRow] = field(default_factory=list)
    runs: list[RunRecord] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)

    def run(
        self,
        kind: str,
        at: float,
        used: Iterable[tuple[str, int, str]],
        made: Iterable[tuple[str, ArtifactRef]],
        memo_key: str | None = None,
    ) -> str:
        """Add a finished run: what it used as (role, ordinal, digest), what it made as (role, artifact)."""
        run = a_run(kind, at, memo_key)
        self.runs.append(run)
        self.edges += [Edge(run.id, "used", role, ordinal, digest) for role, ordinal, digest in used]
        for role, ref in made:
            self.artifacts.append(ArtifactRow(ref, at))
            self.edges.append(Edge(run.id, "generated", role, 0, ref.digest))
        return run.id

    def record(self, catalog: Catalog) -> None:
        with catalog.bulk() as bulk:
            bulk.artifacts(self.artifacts)
            bulk.runs(self.runs)
            bulk.edges(self.edges)


def a_run(kind: str, at: float, memo_key: str | None = None, card: str = CARD) -> RunRecord:
    """A run that succeeded at that time."""
    return RunRecord(
        id=new_id(), kind=kind, card=card, card_digest=CODE, contract=CONTRACT, profile="rollout",
        memo_key=memo_key, key_parts=None, parameters={"num_inference_steps": 10, "guidance_scale": 3.5},
        seed=7, state="succeeded", priority=0, attempt=1, max_attempts=3, waiters=1, cancel_requested=False,
        worker="worker-a", lease_expires_at=None, stage=None, step=10, total=10, workflow_run_id=None,
        prefect_flow_run_id=None, prefect_task_run_id=None, created_at=at, started_at=at + 0.1,
        finished_at=at + 1.0, timings={"denoise": 0.8, "decode": 0.1}, error=None,
    )  # fmt: skip


def history(catalog: Catalog, shape: Shape, steps_per_block: int = 10) -> History:
    """Record a training history of `shape`, its versions published, several steps to a transaction."""
    told, begun, imported = _begin()
    begun.record(catalog)
    base = {"transformer": told.versions[0], **{name: ref.digest for name, ref in _FROZEN.items()}}
    parent = catalog.weights.publish_all(CARD, base, imported)["transformer"]
    _count(told, begun)
    steps = iter(range(shape.steps))
    while block := list(islice(steps, steps_per_block)):
        rows = Rows()
        trained = [_train_step(rows, told, shape, step) for step in block]
        rows.record(catalog)
        _count(told, rows)
        for digest, run_id in trained:
            parent = catalog.weights.publish(CARD, "transformer", digest, run_id, parent)
    return told


def rows_of(shape: Shape) -> Rows:
    """The same history without recording it; without versions."""
    told, rows, _ = _begin()
    for step in range(shape.steps):
        _train_step(rows, told, shape, step)
    return rows


def finished_runs(catalog: Catalog, count: int, per_block: int = 50_000) -> None:
    """Runs that ended long ago and made nothing."""
    for start in range(0, count, per_block):
        with catalog.bulk() as bulk:
            bulk.runs(a_run("engine", START + n) for n in range(start, min(start + per_block, count)))


def _begin() -> tuple[History, Rows, str]:
    """The imports before the first step, and the run that brought the weights."""
    first, rows = an_artifact(f"{CARD} transformer 0", "weights"), Rows()
    base = {"transformer": first, **_FROZEN}
    imported = rows.run("import", START, (), [(f"weights:{name}", ref) for name, ref in base.items()])
    rows.run("import", START, (), [("weights:net", _SCORER)])
    return History([first.digest]), rows, imported


def _train_step(rows: Rows, told: History, shape: Shape, step: int) -> tuple[str, str]:
    """One version's rollouts and rewards, and the step that makes the next from them."""
    policy, at = told.versions[-1], START + 600.0 * (step + 1)
    trajectories: list[str] = []
    rewards: list[str] = []
    for prompt in range(shape.prompts):
        text = an_artifact(f"prompt {step} {prompt}", "text")
        rows.artifacts.append(ArtifactRow(text, at))
        for sample in range(shape.samples):
            _rollout(rows, told, f"{step} {prompt} {sample}", policy, text, at, trajectories, rewards)
    after = an_artifact(f"{CARD} transformer {step + 1}", "weights")
    used = [
        ("weights:transformer", 0, policy),
        *(("trajectory", n, digest) for n, digest in enumerate(trajectories)),
        *(("reward", n, digest) for n, digest in enumerate(rewards)),
    ]
    run_id = rows.run("train", at + 500, used, [("weights:transformer", after)])
    told.versions.append(after.digest)
    return after.digest, run_id


def _rollout(
    rows: Rows,
    told: History,
    name: str,
    policy: str,
    text: ArtifactRef,
    at: float,
    trajectories: list[str],
    rewards: list[str],
) -> None:
    made = {kind: an_artifact(f"{kind} {name}", kind) for kind in ("image", "latent", "trajectory")}
    key = sha256(f"key {name}".encode())
    weights = {"transformer": policy, **{part: ref.digest for part, ref in _FROZEN.items()}}
    used = [("prompt", 0, text.digest), *((f"weights:{part}", 0, digest) for part, digest in weights.items())]
    rows.run("engine", at, used, made.items(), key)
    reward = an_artifact(f"reward {name}", "reward")
    rows.run(
        "reward", at + 100, [("image", 0, made["image"].digest), ("weights:net", 0, _SCORER.digest)],
        [("reward", reward)],
    )  # fmt: skip
    trajectories.append(made["trajectory"].digest)
    rewards.append(reward.digest)
    if name.endswith(" 0"):
        told.images.append(made["image"].digest)
        told.memo_keys.append(key)


def _count(told: History, rows: Rows) -> None:
    told.artifacts += len(rows.artifacts)
    told.runs += len(rows.runs)
    told.edges += len(rows.edges)


def chain(catalog: Catalog, length: int) -> list[str]:
    """`length` runs in a row, each making the next artifact from the one before; digests, oldest first."""
    refs = [an_artifact(f"link {n}", "weights") for n in range(length + 1)]
    rows = Rows(artifacts=[ArtifactRow(refs[0], START)])
    for n, (before, after) in enumerate(pairwise(refs)):
        rows.run("train", START + n, [("weights:net", 0, before.digest)], [("weights:net", after)])
    rows.record(catalog)
    return [ref.digest for ref in refs]


def fan(catalog: Catalog, width: int) -> tuple[str, str]:
    """One artifact that `width` runs use, and one made by a run that uses what all of them made; their
    digests."""
    root, tip = (an_artifact(f"fan {width} {end}", "weights") for end in ("root", "tip"))
    rows = Rows(artifacts=[ArtifactRow(root, START)])
    blades = [an_artifact(f"blade {n} of {width}") for n in range(width)]
    for n, blade in enumerate(blades):
        rows.run("engine", START + n, [("weights:net", 0, root.digest)], [("image", blade)])
    used = [("sample", n, blade.digest) for n, blade in enumerate(blades)]
    rows.run("train", START + width, used, [("weights:net", tip)])
    rows.record(catalog)
    return root.digest, tip.digest
