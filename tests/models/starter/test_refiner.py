"""The starter refiner: its language, its training, and the weights that ship."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from mutoscope.models.registry import get_card
from mutoscope.models.starter.folders import starter_folder
from mutoscope.models.starter.grammar import caption_of, parse
from mutoscope.models.starter.refiner_evaluate import held_out_pairs
from mutoscope.models.starter.refiner_lm import (
    LONGEST_CAPTION,
    TEMPLATE,
    TURN,
    VOCABULARY,
    RefinerStage,
    complete,
    encode_pairs,
    refiner_tokenizer,
)
from mutoscope.models.starter.refiner_recipe import RefinerLmRecipe
from mutoscope.models.starter.stage import load_checkpoint, save_checkpoint
from mutoscope.models.starter.terse import Pair, sample_pair
from mutoscope.models.starter.tokenizer import EOS_ID, PAD_ID, UNK_ID
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.instance import load_instance
from mutoscope.platform.engine.request import Request

TINY = replace(
    RefinerLmRecipe(), width=32, layers=1, heads=2, inner_width=48, batch=8, steps=6, watch_prompts=2
)


def pairs(count: int, split: str = "train") -> list[Pair]:
    rng = np.random.default_rng(0)
    return [sample_pair(rng, split) for _ in range(count)]


class TestLanguage:
    def test_a_pair_is_about_one_scene_of_its_split(self) -> None:
        for split in ("train", "held_out"):
            for pair in pairs(500, split):
                scene = parse(pair.full)
                assert pair.full == caption_of(scene)
                assert scene.split == split
                assert pair.completed_by(pair.full)

    def test_both_sides_of_a_scene_complete_it_and_its_mirror_does_not(self) -> None:
        pair = Pair(
            "red circle, blue square left", "a red circle right of a blue square on a white background"
        )
        assert pair.completed_by("a blue square left of a red circle")
        assert not pair.completed_by("a red circle left of a blue square")
        assert not pair.completed_by("a red circle right of a blue square, growing")
        assert not pair.completed_by("red circle right of blue square")

    def test_a_vague_prompt_leaves_the_relation_and_nothing_else(self) -> None:
        pair = Pair("red circle, blue square", "a red circle above a blue square on a white background", True)
        for relation in ("left of", "right of", "above", "below"):
            assert pair.completed_by(f"a red circle {relation} a blue square")
        assert not pair.completed_by("a red ring above a blue square")
        assert not pair.completed_by("a red circle above a blue square on a black background")

    def test_a_side_is_of_the_thing_it_follows(self) -> None:
        """`A, B left` says where B is; `A left B` and `A left of B` say where A is."""
        found = Counter()
        for pair in pairs(3000):
            scene = parse(pair.full)
            if pair.vague or len(scene.objects) == 1:
                continue
            first, second = (f"{thing.colour} {thing.shape}" for thing in scene.objects)
            for side, relation in (("left", "left of"), ("right", "right of")):
                mirrored = {"left of": "right of", "right of": "left of"}[relation]
                if pair.terse.startswith(f"{first}, {second} {side}"):
                    assert scene.relation == mirrored
                    found["second"] += 1
                if pair.terse.startswith((f"{first} {side} {second}", f"{first} {side} of {second}")):
                    assert scene.relation == relation
                    found["first"] += 1
        assert min(found["first"], found["second"]) > 100


class TestTokenizer:
    def test_every_text_is_known_and_fits(self) -> None:
        recipe, tokenizer = RefinerLmRecipe(), refiner_tokenizer(RefinerLmRecipe().positions)
        for pair in pairs(2000):
            asked = tokenizer(TEMPLATE.format(prompt=pair.terse)).input_ids
            answer = tokenizer(pair.full, add_special_tokens=False).input_ids
            assert UNK_ID not in (*asked, *answer)
            assert len(answer) < LONGEST_CAPTION
            assert len(asked) + LONGEST_CAPTION <= recipe.positions
            assert tokenizer.decode(answer) == pair.full

    def test_the_loss_counts_the_caption_and_its_end(self) -> None:
        tokenizer = refiner_tokenizer(64)
        ids, learned = encode_pairs(tokenizer, [Pair("red ring", "a red ring"), Pair("a", "a blue ring on")])
        for row, caption in enumerate((["a", "red", "ring"], ["a", "blue", "ring", "on"])):
            assert ids[row][learned[row]].tolist() == [*(VOCABULARY[word] for word in caption), EOS_ID]
        start = int(learned[0].int().argmax())
        assert ids[0, start - 1] == VOCABULARY[TURN]
        assert set(ids[0, start + 4 :].tolist()) <= {PAD_ID}


class TestTraining:
    def test_it_continues_where_it_stopped(self, tmp_path: Path) -> None:
        torch.set_num_threads(1)
        whole, first, second = (RefinerStage(TINY) for _ in range(3))
        losses = [whole.step()["loss"] for _ in range(6)]
        for _ in range(3):
            first.step()
        save_checkpoint(first, tmp_path / "refiner.pt")
        load_checkpoint(second, tmp_path / "refiner.pt")
        assert [second.step()["loss"] for _ in range(3)] == losses[3:]
        assert second.done
        assert losses[-1] < losses[0]

    def test_its_folder_is_a_refiners(self, tmp_path: Path) -> None:
        stage = RefinerStage(TINY)
        stage.step()
        stage.export(tmp_path / "folder")
        card = get_card("refiner-lm")
        instance = load_instance(card, tmp_path / "folder")
        pair = Pair("red circle", "a red circle on a white background")
        request = Request("r", card.id, {}, {"prompt": pair.terse}, 0)
        expected = complete(stage.model.eval(), stage.tokenizer, pair.terse)
        assert Engine().run(instance, request).outputs["text"].value == expected.strip()


@pytest.fixture(scope="module")
def shipped() -> Path:
    folder = starter_folder("refiner-lm")
    assert folder is not None
    return folder


class TestShipped:
    def test_the_folder_is_whole_and_small(self, shipped: Path) -> None:
        get_card("refiner-lm").inspect(shipped)
        assert sum(path.stat().st_size for path in shipped.iterdir()) <= 2 * 2**20

    def test_held_out_prompts_are_completed(self, shipped: Path) -> None:
        """Greedy, through the card. A sample of what the model card's figures count."""
        card = get_card("refiner-lm")
        instance = load_instance(card, shipped)
        for kind, asked in held_out_pairs(8).items():
            right = 0
            for pair in asked:
                result = Engine().run(instance, Request("r", card.id, {}, {"prompt": pair.terse}, 0))
                assert result.warnings == ()
                right += pair.completed_by(result.outputs["text"].value)
            assert right >= 7, kind
