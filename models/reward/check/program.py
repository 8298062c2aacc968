"""The scene checks: one step on the host.

Every check is passed or not. A picture's score is the share it passes; a clip's is the mean of its last
frame's share and of its motion's, as in reward-scene, where a clip's picture is the mean of its frames.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from mutoscope.models.reward.check.card import CARD
from mutoscope.models.reward.common.loop import KIND, Unscorable, Verdict, reward_program
from mutoscope.models.reward.common.sample import frames_of, is_clip
from mutoscope.models.starter.checker import ImageReport, VideoReport, check_image, check_video
from mutoscope.models.starter.grammar import Scene, parse
from mutoscope.platform.engine.loop import BuildContext, Program, WorkPlan
from mutoscope.platform.engine.request import Request

COST = 2.0
"""Of a sample, next to the scene scorer's 1 for a frame."""


def build(context: BuildContext) -> Program:
    """The card's program."""
    return reward_program(CARD.id, SceneCheck())


def scene_of(request: Request) -> Scene:
    """The scene that the prompt means; the card has refused text outside the grammar."""
    return parse(request.parameters["prompt"])


class SceneCheck:
    """Reads the pixels and says which checks of the prompt's scene they pass."""

    def count(self, request: Request) -> int:
        return 1

    def steps(self, slots: Mapping[str, Any]) -> Sequence[WorkPlan]:
        return [WorkPlan(KIND, (), partial(report_of, slots["request"]), COST)]

    def conclude(
        self, slots: Mapping[str, Any], results: Sequence[ImageReport | VideoReport | None]
    ) -> Verdict:
        (report,), scene = results, scene_of(slots["request"])
        if report is None:
            raise Unscorable("a clip of one frame has no motion: give more frames, or a picture")
        if isinstance(report, ImageReport):
            return Verdict(report.mean, {"strict": report.strict, **picture_checks(scene, report)})
        motion = {
            f"motion {said.colour}": value for said, value in zip(scene.objects, report.motion, strict=True)
        }
        score = (report.last.mean + float(np.mean(report.motion))) / 2
        strict = report.last.strict and report.motion_right
        return Verdict(score, {"strict": strict, **picture_checks(scene, report.last), **motion})


def report_of(request: Request) -> ImageReport | VideoReport | None:
    """What the judge says of the sample; None for a clip that cannot move."""
    scene, frames_THW3 = scene_of(request), frames_of(request)
    if not is_clip(request):
        return check_image(frames_THW3[0], scene)
    return None if len(frames_THW3) < 2 else check_video(frames_THW3, scene, frames_THW3[0])


def picture_checks(scene: Scene, report: ImageReport) -> dict[str, float]:
    """The checks of a picture by name, 1 where passed, named as reward-scene names its criteria."""
    checks: dict[str, float] = {}
    for said, colour, shape in zip(scene.objects, report.colour, report.shape, strict=True):
        checks[f"colour {said.colour}"] = colour
        checks[f"shape {said.colour} {said.shape}"] = shape
    if report.relation is not None:
        checks[f"relation {scene.relation}"] = report.relation
    return {**checks, "background": report.background, "count": report.count}
