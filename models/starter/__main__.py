"""``python -m mutoscope.models.starter``: train the starter models again, or measure a folder of them."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from pathlib import Path
from typing import Any

MODELS = ("image", "video", "refiner", "scorer")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m mutoscope.models.starter", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    train = commands.add_parser("train", help="train a model and write its folder")
    train.add_argument("model", choices=MODELS)
    train.add_argument("--out", type=Path, required=True, help="folder to write, in diffusers format")
    train.add_argument("--work", type=Path, help="checkpoints and logs (default: OUT.work)")
    train.add_argument("--start", type=Path, help="a folder of trained weights to go on from (video)")
    train.add_argument("--minutes", type=float, help="time budget; default: the steps of the recipe")
    evaluate = commands.add_parser("evaluate", help="figures on held-out captions or prompts")
    evaluate.add_argument("model", choices=MODELS)
    evaluate.add_argument("--folder", type=Path, required=True)
    evaluate.add_argument("--captions", type=int, default=200, help="captions per kind (default: 200)")
    evaluate.add_argument("--json", type=Path, help="write the figures here")
    evaluate.add_argument("--sheets", type=Path, help="write contact sheets into this folder")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    options = _parser().parse_args(arguments)
    module = importlib.import_module(f"mutoscope.models.starter.{_MODULE[options.command, options.model]}")
    if options.command == "train":
        work = options.work or options.out.with_name(options.out.name + ".work")
        module.CURRICULUM.train(options.out, work, start=options.start, minutes=options.minutes)
        return 0
    figures: dict[str, Any] = module.measure_folder(options.folder, options.captions, options.sheets)
    text = json.dumps(figures, indent=2)
    if options.json is not None:
        options.json.write_text(text + "\n")
    sys.stdout.write(text + "\n")
    return 0


_MODULE = {
    ("train", "image"): "image_train",
    ("train", "video"): "video_train",
    ("train", "refiner"): "refiner_train",
    ("train", "scorer"): "scorer_train",
    ("evaluate", "image"): "evaluate",
    ("evaluate", "video"): "video_evaluate",
    ("evaluate", "refiner"): "refiner_evaluate",
    ("evaluate", "scorer"): "scorer_evaluate",
}

if __name__ == "__main__":
    raise SystemExit(main())
