"""Every workflow that Mutoscope ships: importing this module registers them all."""

from __future__ import annotations

from mutoscope.flows.generate import (
    best_of_n,
    branch_image,
    extend_video,
    fan_out,
    image_to_video,
    prompt_sweep,
    score,
    serve,
    t2i_i2v_extend,
    text_to_film,
    text_to_image,
    text_to_video,
)
from mutoscope.flows.maintenance import collect, reap, report, train_starter, verify
from mutoscope.flows.rl import (
    collect_rollouts,
    compare,
    data_generation,
    distill,
    train_flow_grpo,
    train_multi_expert,
    train_nft,
    train_unified,
    train_workflow_rl,
)

__all__ = [
    "best_of_n",
    "branch_image",
    "collect",
    "collect_rollouts",
    "compare",
    "data_generation",
    "distill",
    "extend_video",
    "fan_out",
    "image_to_video",
    "prompt_sweep",
    "reap",
    "report",
    "score",
    "serve",
    "t2i_i2v_extend",
    "text_to_film",
    "text_to_image",
    "text_to_video",
    "train_flow_grpo",
    "train_multi_expert",
    "train_nft",
    "train_starter",
    "train_unified",
    "train_workflow_rl",
    "verify",
]
