"""The scene scorer: frames are rows, so pictures of many requests are read in one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from mutoscope.models.reward.common.loop import KIND, Unscorable, Verdict, reward_program
from mutoscope.models.reward.common.sample import count_of, frames_of, is_clip
from mutoscope.models.reward.scene.card import CARD
from mutoscope.models.reward.scene.criteria import (
    Seen,
    Vocabulary,
    motion_criteria,
    picture_criteria,
    stack,
    total,
)
from mutoscope.models.reward.scene.net import SIDE, SceneScorer
from mutoscope.models.starter.grammar import Scene, parse
from mutoscope.platform.engine.loop import BuildContext, Program, Rows, WorkPlan
from mutoscope.platform.engine.request import Request


def build(context: BuildContext) -> Program:
    """The card's program over its loaded scorer."""
    scorer = SceneReward(context.components["scorer"], context.device, context.dtype)
    return reward_program(CARD.id, scorer)


def scene_of(request: Request) -> Scene:
    """The scene that the prompt means; the card has refused text outside the grammar."""
    return parse(request.parameters["prompt"])


class SceneReward:
    """Reads frames with the network and grades them against the prompt's scene."""

    def __init__(self, net: SceneScorer, device: torch.device, dtype: torch.dtype) -> None:
        self.net, self.device, self.dtype = net, device, dtype
        self.words = Vocabulary.of(net.config)

    def count(self, request: Request) -> int:
        return 1

    def steps(self, slots: Mapping[str, Any]) -> Sequence[WorkPlan]:
        request: Request = slots["request"]
        frames = count_of(request)
        rows = Rows(self.read, frames, partial(self.rows, request), stack)
        return [WorkPlan.of_rows(KIND, (SIDE, SIDE), rows, cost=float(frames))]

    def rows(self, request: Request) -> list[dict[str, Tensor]]:
        """A row for each frame: its pixels at the network's size, (1, 3, 64, 64) in [-1, 1]."""
        frames_B3HW = torch.from_numpy(frames_of(request)).permute(0, 3, 1, 2)
        signal_B3HW = frames_B3HW.to(self.device, torch.float32) / 127.5 - 1
        if signal_B3HW.shape[2:] != (SIDE, SIDE):
            signal_B3HW = functional.interpolate(signal_B3HW, size=(SIDE, SIDE), mode="area")
        return [{"pixels_B3HW": row} for row in signal_B3HW.to(self.dtype).split(1)]

    def read(self, rows: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """What the network sees in stacked rows."""
        return tuple(self.net(rows["pixels_B3HW"]))

    def conclude(self, slots: Mapping[str, Any], results: Sequence[Seen]) -> Verdict:
        request: Request = slots["request"]
        (seen,), scene = results, scene_of(request)
        picture = picture_criteria(scene, seen, self.words)
        motion: dict[str, float] = {}
        if is_clip(request):
            if len(seen.area_TC) < 2:
                raise Unscorable("a clip of one frame has no motion: give more frames, or a picture")
            motion = motion_criteria(scene, seen, self.words)
        return Verdict(total(picture, motion), {**picture, **motion})
