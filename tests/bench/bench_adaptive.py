"""What wan-adaptive saves, and how far from the full schedule its videos come out.

    python tests/bench/bench_adaptive.py [--trials 5] [--output FILE]

The starter weights on held-out scenes, every request compared with its twin. A setting is judged by its
worst video: below 30 dB or 0.92 its request is refused, and counted here. The figures do not depend on the
machine's speed; they decide the defaults of `AdaptiveRecipe`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
os.environ["OMP_NUM_THREADS"] = "1"

from mutoscope.models.starter.folders import starter_folder  # noqa: E402
from mutoscope.models.starter.video_evaluate import Trial, held_out_trials  # noqa: E402
from mutoscope.models.wan.adaptive_card import CARD, LEAST_PSNR, LEAST_SSIM  # noqa: E402
from mutoscope.platform.engine import numerics  # noqa: E402
from mutoscope.platform.engine.engine import Engine  # noqa: E402
from mutoscope.platform.engine.instance import Instance, load_instance  # noqa: E402
from mutoscope.platform.engine.request import Request  # noqa: E402
from mutoscope.platform.errors import InvalidParameter  # noqa: E402
from tests.bench import environment  # noqa: E402

RESULT = ROOT / "tests/bench/results/adaptive.json"
SCHEDULES = ((12, 1.0), (24, 1.0), (12, 3.0))
"""Steps and guidance: the recipe's own, a finer one, and one whose velocities change faster."""


@dataclass(frozen=True, slots=True)
class Setting:
    """How freely steps are left out."""

    reuse_threshold: float
    max_reuse: int
    exit_threshold: float


SETTINGS = (
    Setting(0.02, 3, 0.0),
    Setting(0.05, 3, 0.0),
    Setting(0.1, 3, 0.0),
    Setting(0.2, 3, 0.0),
    Setting(0.1, 3, 0.05),
    Setting(0.5, 6, 0.2),
    Setting(2.0, 12, 0.5),
)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what wan-adaptive saves and what it costs.")
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--output", type=Path, default=RESULT)
    options = parser.parse_args()
    numerics.configure_torch(numerics.cpu_contract(1))
    folder = starter_folder("wan-i2v")
    assert folder is not None, "the package ships starter weights for wan-i2v"
    instance, trials = load_instance(CARD, folder), held_out_trials(options.trials)
    print(
        "| steps | g | reuse | in a row | exit | computed | saved | dB mean, worst | SSIM worst | refused |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    rows = []
    for steps, guidance in SCHEDULES:
        for setting in SETTINGS:
            rows.append(measured(instance, trials, steps, guidance, setting))
            print(line(rows[-1]), flush=True)
    written = {
        "benchmark": "adaptive",
        **environment.describe(),
        "config": {"trials": options.trials, "least_psnr_db": LEAST_PSNR, "least_ssim": LEAST_SSIM},
        "settings": rows,
    }
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(written, indent=1) + "\n")


def measured(
    instance: Instance, trials: list[Trial], steps: int, guidance: float, setting: Setting
) -> dict[str, Any]:
    """One setting on every trial; figures are of those that were not refused."""
    asked = {"num_inference_steps": steps, "guidance_scale": guidance, "twin_rate": 1.0, **asdict(setting)}
    reports = [made for trial in trials if (made := report(instance, trial, asked)) is not None]
    decibels = [made["twin"]["psnr_db"] for made in reports if made["twin"]["psnr_db"] is not None]
    return {
        "steps": steps,
        "guidance_scale": guidance,
        **asdict(setting),
        "refused": len(trials) - len(reports),
        "computed_steps": statistics.fmean(made["computed_steps"] for made in reports) if reports else None,
        "psnr_db": statistics.fmean(decibels) if decibels else None,
        "psnr_db_worst": min(decibels, default=None),
        "ssim_worst": min((made["twin"]["ssim"] for made in reports), default=None),
    }


def report(instance: Instance, trial: Trial, asked: dict[str, Any]) -> dict[str, Any] | None:
    """What a request says about itself; None if its video strayed too far."""
    parameters = {"prompt": trial.caption, **asked}
    request = Request("r", CARD.id, {"image": trial.truth[0]}, parameters, trial.seed)
    try:
        told: dict[str, Any] = Engine().run(instance, request).outputs["report"].value
    except InvalidParameter:
        return None
    return told


def line(row: dict[str, Any]) -> str:
    """One row of the table."""
    computed = row["computed_steps"]
    saved = "" if computed is None else f"{1 - computed / row['steps']:.0%}"
    decibels = "equal" if row["psnr_db"] is None else f"{row['psnr_db']:.1f}, {row['psnr_db_worst']:.1f}"
    cells = [
        row["steps"],
        row["guidance_scale"],
        row["reuse_threshold"],
        row["max_reuse"],
        row["exit_threshold"],
        "" if computed is None else f"{computed:.1f}",
        saved,
        "" if computed is None else decibels,
        "" if computed is None else f"{row['ssim_worst']:.4f}",
        row["refused"],
    ]
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    main()
