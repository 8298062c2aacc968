"""The generating loop: video and sound are denoised together; with two stages, upsampled and refined.

One plan per pass of a step: the prompt's (with the negative prompt's in the same row), and where guidance
asks for them that with skipped self-attention and that of isolated modalities. The upsampler's run is a plan,
too.

Shape suffixes as in `latents`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mutoscope.models.ltx2.card import Ltx2Recipe
from mutoscope.models.ltx2.components import Ltx2Components
from mutoscope.models.ltx2.forward import Forward, Row, row
from mutoscope.models.ltx2.guidance import Answers, Guidance
from mutoscope.models.ltx2.latents import (
    Grid,
    Latents,
    noised,
    pack,
    pack_audio,
    second_seed,
    unpack,
    unpack_audio,
)
from mutoscope.models.ltx2.text import Conditioning
from mutoscope.platform.engine.loop import Done, LoopState, Rows, WorkPlan
from mutoscope.platform.engine.request import Request
from mutoscope.platform.engine.sampling import ode_step

PROMPT, SKIPPED, ISOLATED = "prompt", "skipped", "isolated"
"""The passes of a step; `Answers` says what each is for."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage as a request goes through it.

    Attributes:
        kind: of its plans.
        sigmas, timesteps: noise levels (steps + 1,), which fall to 0, and what the transformer is told of
            them (steps,).
        texts: the negative prompt if it is guided, and the prompt.
        coords: positions of the video's tokens and of the sound's.
        calls: its passes, by name.
    """

    kind: str
    grid: Grid
    sigmas: Tensor
    timesteps: Tensor
    guidance: Guidance
    texts: tuple[Conditioning, ...]
    coords: tuple[Tensor, Tensor | None]
    calls: Mapping[str, Forward]

    @property
    def steps(self) -> int:
        return len(self.timesteps)


@dataclass(slots=True, kw_only=True)
class GenerateState(LoopState):
    """Everything that one request changes or needs; `step` counts plans.

    Attributes:
        video_BLC, audio_BMK: normalised tokens at the current noise level, float32.
        level: steps of the current stage that are done. answers: the passes of the current step so far.
        second: the stage to come, behind the upsampler.
    """

    request: Request
    stage: Stage
    second: Stage | None
    video_BLC: Tensor
    audio_BMK: Tensor | None
    level: int = 0
    answers: list[tuple[Tensor, ...]] = field(default_factory=list)


class Generate:
    """One loop through all stages, whose parts the engine interleaves with other requests'."""

    name = "generate"

    def __init__(
        self, parts: Ltx2Components, latents: Latents, recipe: Ltx2Recipe, device: torch.device
    ) -> None:
        self.parts, self.latents, self.recipe, self.device = parts, latents, recipe, device
        together, apart = Forward(parts.transformer), Forward(parts.transformer, isolate=True)
        self._asked = {
            False: {
                PROMPT: together,
                SKIPPED: Forward(parts.transformer, skip=recipe.stg_blocks),
                ISOLATED: apart,
            },
            True: {PROMPT: apart, SKIPPED: Forward(parts.transformer, isolate=True, skip=recipe.stg_blocks)},
        }

    def total(self, slots: Mapping[str, Any]) -> int:
        """Plans that the request takes."""
        parameters = slots["request"].parameters
        plans = parameters["num_inference_steps"] * len(passes(Guidance.of(parameters)))
        if parameters["two_stages"]:
            guidance = Guidance.of_second_stage(parameters)
            plans += 1 + len(self.recipe.stage_2_sigmas) * len(passes(guidance))
        return int(plans)

    def init(self, slots: Mapping[str, Any]) -> GenerateState:
        request: Request = slots["request"]
        two = request.parameters["two_stages"]
        stage = self._first(slots, halved=two)
        video_BLC, audio_BMK = self.latents.noise(stage.grid, request.seed, self.device)
        return GenerateState(
            total=self.total(slots),
            request=request,
            stage=stage,
            second=self._second(slots) if two else None,
            video_BLC=video_BLC,
            audio_BMK=audio_BMK,
        )

    def next(self, state: GenerateState) -> WorkPlan | Done:
        stage, grid = state.stage, state.stage.grid
        if state.level == stage.steps:
            if state.second is None:
                return Done()
            size = (grid.frames, grid.height, grid.width)
            return WorkPlan("upsample", size, partial(self.upsample, state))
        name = list(stage.calls)[len(state.answers)]
        pair = stage.texts if name == PROMPT else stage.texts[-1:]
        shape = (grid.frames, grid.height, grid.width, grid.moments, len(pair), pair[0].mask_BS.shape[1])
        rows = Rows(stage.calls[name].predict, 1, partial(self.rows, state, pair), _only)
        kind = stage.kind if name == PROMPT else f"{stage.kind}_{name}"
        return WorkPlan.of_rows(kind, shape, rows, cost=float(len(pair) * self._share(state)))

    def advance(self, state: GenerateState, result: Any) -> None:
        state.step += 1
        if state.level == state.stage.steps:
            self._begin_second(state, result)
            return
        state.answers.append(result)
        if len(state.answers) == len(state.stage.calls):
            self._step(state)

    def finalize(self, state: GenerateState) -> Mapping[str, Any]:
        """Latents as the VAEs take them: `latents_BCTHW` and `audio_latents_BAMF`, None without sound.

        In half precision `decoded_BCTHW` are those that are decoded: the pipeline rounds before it
        denormalises them for that, and not where it returns them.
        """
        audio_BMK, normalised_BCTHW = state.audio_BMK, unpack(state.video_BLC, state.stage.grid)
        rounded_BCTHW = normalised_BCTHW.to(state.stage.texts[-1].video_BSD.dtype)
        return {
            "latents_BCTHW": self.latents.denormalise(normalised_BCTHW),
            "decoded_BCTHW": self.latents.denormalise(rounded_BCTHW),
            "audio_latents_BAMF": None if audio_BMK is None else self._audio_latents(audio_BMK),
        }

    def rows(self, state: GenerateState, texts: tuple[Conditioning, ...]) -> list[Row]:
        """The row of the current pass."""
        stage = state.stage
        timestep = stage.timesteps[state.level]
        return [row(texts, state.video_BLC, state.audio_BMK, stage.coords, timestep)]

    def upsample(self, state: GenerateState) -> Tensor:
        """The video's latents, not normalised, at twice the height and width."""
        upsampler = self.parts.latent_upsampler
        assert upsampler is not None
        latents_BCTHW = self.latents.denormalise(unpack(state.video_BLC, state.stage.grid))
        larger_BCTHW: Tensor = upsampler(latents_BCTHW.to(upsampler.dtype))
        return larger_BCTHW

    def _step(self, state: GenerateState) -> None:
        """From one noise level to the next, both modalities."""
        stage = state.stage
        sigma, sigma_next = stage.sigmas[state.level], stage.sigmas[state.level + 1]
        by_name = dict(zip(stage.calls, state.answers, strict=True))

        def move(sample: Tensor, modality: int) -> Tensor:
            scales = (stage.guidance.video, stage.guidance.audio)[modality]
            assert scales is not None
            velocity = _answers(by_name, modality).guided(scales, sample, sigma)
            return ode_step(sample, velocity, sigma, sigma_next)

        state.video_BLC = move(state.video_BLC, 0)
        if state.audio_BMK is not None:
            state.audio_BMK = move(state.audio_BMK, 1)
        state.answers, state.level = [], state.level + 1

    def _begin_second(self, state: GenerateState, larger_BCTHW: Tensor) -> None:
        """Noise what the first stage made to where the second one begins, the video first."""
        assert state.second is not None
        generator = torch.Generator("cpu").manual_seed(second_seed(state.request.seed))
        noise_level = self.recipe.stage_2_sigmas[0]
        video_BLC = pack(self.latents.normalise(larger_BCTHW))
        state.video_BLC = noised(video_BLC, noise_level, generator).float()
        if state.audio_BMK is not None:
            # As it leaves the first stage and comes into the second: rounded on the way.
            audio_BMK = self.latents.normalise_audio(pack_audio(self._audio_latents(state.audio_BMK)))
            state.audio_BMK = noised(audio_BMK, noise_level, generator).float()
        state.stage, state.second, state.level = state.second, None, 0

    def _audio_latents(self, audio_BMK: Tensor) -> Tensor:
        return unpack_audio(self.latents.denormalise_audio(audio_BMK), self.latents.bins)

    def _first(self, slots: Mapping[str, Any], *, halved: bool) -> Stage:
        parameters, schedule = slots["request"].parameters, self.parts.scheduler
        grid = self.latents.grid(parameters, halved=halved)
        if self.recipe.sigmas:
            sigmas = _levels(self.recipe.sigmas)
        else:
            tokens = grid.tokens - grid.moments
            sigmas = schedule.sigmas(parameters["num_inference_steps"], tokens=tokens)
        return self._stage("denoise", slots, grid, sigmas, Guidance.of(parameters))

    def _second(self, slots: Mapping[str, Any]) -> Stage:
        parameters = slots["request"].parameters
        guidance = Guidance.of_second_stage(parameters)
        sigmas = _levels(self.recipe.stage_2_sigmas)
        return self._stage("refine", slots, self.latents.grid(parameters), sigmas, guidance)

    def _stage(
        self,
        kind: str,
        slots: Mapping[str, Any],
        grid: Grid,
        sigmas: np.ndarray[Any, Any],
        guidance: Guidance,
    ) -> Stage:
        parameters = slots["request"].parameters
        calls = self._asked[parameters["isolate_modalities"] or not parameters["audio"]]
        texts = (slots["prompt"],)
        return Stage(
            kind=kind,
            grid=grid,
            sigmas=torch.from_numpy(sigmas).to(self.device),
            timesteps=torch.from_numpy(self.parts.scheduler.timesteps(sigmas)).to(self.device),
            guidance=guidance,
            texts=(slots["negative_prompt"], *texts) if guidance.guided else texts,
            coords=self._coords(grid, parameters["fps"]),
            calls={name: calls[name] for name in passes(guidance)},
        )

    def _coords(self, grid: Grid, fps: float) -> tuple[Tensor, Tensor | None]:
        transformer = self.parts.transformer
        video = transformer.rope.prepare_video_coords(
            1, grid.frames, grid.height, grid.width, self.device, fps=fps
        )
        if not grid.moments:
            return video, None
        return video, transformer.audio_rope.prepare_audio_coords(1, grid.moments, self.device)

    def _share(self, state: GenerateState) -> float:
        """Tokens of the stage in units of the final grid's, so that a small first stage costs less."""
        last = state.second or state.stage
        return state.stage.grid.tokens / last.grid.tokens


def passes(guidance: Guidance) -> tuple[str, ...]:
    """What the transformer is asked in each step."""
    return (
        PROMPT,
        *((SKIPPED,) if guidance.skips else ()),
        *((ISOLATED,) if guidance.isolates else ()),
    )


def _answers(by_name: Mapping[str, tuple[Tensor, ...]], modality: int) -> Answers:
    """What the passes say of one modality: the last of a row's passes is the prompt's."""
    prompt = by_name[PROMPT][modality]
    others = {
        name: by_name[name][modality][:, 0] if name in by_name else None for name in (SKIPPED, ISOLATED)
    }
    return Answers(
        cond=prompt[:, -1],
        uncond=prompt[:, 0] if prompt.shape[1] == 2 else None,
        skipped=others[SKIPPED],
        isolated=others[ISOLATED],
    )


def _levels(sigmas: Sequence[float]) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Explicit noise levels, as they are, and the 0 behind them."""
    return np.append(np.array(sigmas, np.float32), np.float32(0))


def _only(results: Sequence[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    return results[0]
