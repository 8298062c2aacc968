"""A small studio's history: pictures and films by two versions of a model, the second trained on what a
scorer thought of the first. No bytes exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mutoscope.platform import ids
from mutoscope.platform.catalog import Catalog, RunRecord, RunSpec
from mutoscope.platform.refs import ArtifactRef
from tests.support.records import CODE, CONTRACT, LEASE, absent, an_artifact

PROMPT = "a red circle left of a blue square, drifting right"
NUMERIC = {
    "device": "cpu-amd-avx2",
    "dtype": "float32",
    "threads": 1,
    "versions": {"torch": "2.13.0", "numpy": "2.4.6"},
}
SAMPLES = 12


@dataclass(slots=True)
class Story:
    """What happened, by name.

    Attributes:
        weights: ``transformer 1``, ``transformer 2``, ``vae``, ``motion`` and ``scorer``.
        images, films: ``first`` by version 1, ``second`` the same by version 2, ``other`` by version 2 with
            another prompt and guidance, ``again`` by version 1 like the first, but with other bytes.
    """

    catalog: Catalog
    weights: dict[str, ArtifactRef] = field(default_factory=dict)
    images: dict[str, ArtifactRef] = field(default_factory=dict)
    films: dict[str, ArtifactRef] = field(default_factory=dict)

    def generate(
        self,
        card: str,
        seed: int,
        outputs: Mapping[str, ArtifactRef],
        weights: Mapping[str, str],
        inputs: Mapping[str, ArtifactRef] | None = None,
        workflow_run_id: str | None = None,
        **parameters: Any,
    ) -> RunRecord:
        """Queue, claim and finish a card's run; `weights` by their names here."""
        pinned = {component: self.weights[name].digest for component, name in weights.items()}
        parts = {
            "card": card, "card_digest": CODE, "weights": pinned, "parameters": parameters, "seed": seed,
            "inputs": {slot: ref.digest for slot, ref in (inputs or {}).items()}, "numeric": NUMERIC,
        }  # fmt: skip
        spec = RunSpec(
            kind="engine", card=card, card_digest=CODE, contract=CONTRACT, parameters=parameters, seed=seed,
            inputs=inputs or {}, weights=pinned, key_parts=parts, memo_key=ids.digest("test/1", parts),
            workflow_run_id=workflow_run_id,
        )  # fmt: skip
        run = self.catalog.runs.enqueue(spec, present=absent).run
        self.catalog.runs.claim("worker-a", {card: CONTRACT}, LEASE, 1)
        return self.catalog.runs.succeed(run.id, "worker-a", outputs)

    def publish(self, card: str, component: str, name: str) -> None:
        """Import weights."""
        self.weights[name] = an_artifact(name, "weights")
        made = {f"weights:{component}": self.weights[name]}
        run = self.catalog.runs.record_completed(
            "import", card=card, parameters={"folder": f"/models/{card}"}, generated=made
        )
        self.catalog.weights.publish(card, component, self.weights[name].digest, run.id)

    def film(self, name: str, transformer: str, **changes: Any) -> None:
        """A picture, and a film that begins with it, as one workflow run."""
        parameters = {"prompt": PROMPT, "guidance_scale": 3.5, "num_inference_steps": 10, **changes}
        asked = self.catalog.workflows.start("image_video.t2i_i2v", parameters)
        self.images[name], self.films[name] = (
            an_artifact(f"image {name}"),
            an_artifact(f"film {name}", "video"),
        )
        self.generate(
            "flux-t2i", 7, {"image": self.images[name]}, {"transformer": transformer, "vae": "vae"},
            workflow_run_id=asked, **parameters,
        )  # fmt: skip
        self.generate(
            "wan-i2v", 7, {"video": self.films[name]}, {"transformer": "motion"},
            inputs={"image": self.images[name]}, workflow_run_id=asked, prompt=parameters["prompt"],
        )  # fmt: skip
        outputs = {"image": self.images[name], "video": self.films[name]}
        self.catalog.workflows.finish(asked, "succeeded", outputs=outputs)

    def train(self) -> None:
        """Samples by version 1, their scores, and the step that makes version 2 from them."""
        used: dict[str, ArtifactRef] = {"weights:transformer": self.weights["transformer 1"]}
        for n in range(SAMPLES):
            sample, reward = an_artifact(f"sample {n}"), an_artifact(f"reward {n}", "reward")
            made_by = {"transformer": "transformer 1", "vae": "vae"}
            self.generate("flux-t2i", n, {"image": sample}, made_by, prompt="a green square")
            self.generate("aesthetics", 0, {"reward": reward}, {"net": "scorer"}, {"image": sample})
            used |= {f"sample.{n}": sample, f"reward.{n}": reward}
        after = self.weights["transformer 2"] = an_artifact("transformer 2", "weights")
        run = self.catalog.runs.record_completed(
            "train", card="flux-t2i", parameters={"learning_rate": 1e-4}, used=used,
            generated={"weights:transformer": after},
        )  # fmt: skip
        parent = self.catalog.weights.get("flux-t2i/transformer@1")
        self.catalog.weights.publish("flux-t2i", "transformer", after.digest, run.id, parent)


def tell(catalog: Catalog) -> Story:
    """Let it happen."""
    story = Story(catalog)
    for card, component, name in (
        ("flux-t2i", "transformer", "transformer 1"),
        ("flux-t2i", "vae", "vae"),
        ("wan-i2v", "transformer", "motion"),
        ("aesthetics", "net", "scorer"),
    ):
        story.publish(card, component, name)
    story.film("first", "transformer 1")
    story.train()
    story.film("second", "transformer 2")
    story.film("other", "transformer 2", prompt=PROMPT.replace("right", "left"), guidance_scale=5.0)
    story.film("again", "transformer 1")
    return story
