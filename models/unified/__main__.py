"""``python -m mutoscope.models.unified``: put a composed card's folder together, ready to be imported."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from mutoscope.models.registry import get_card
from mutoscope.models.unified.assembly import assemble
from mutoscope.models.unified.card import MULTI_EXPERT, UNIRL_QWENFLUX
from mutoscope.models.unified.composition import REFINER, Composition
from mutoscope.platform.errors import InvalidInput, InvalidParameter, MutoscopeError

COMPOSITIONS = {each.id: each for each in (UNIRL_QWENFLUX, MULTI_EXPERT)}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m mutoscope.models.unified", description=__doc__)
    parser.add_argument("card", choices=list(COMPOSITIONS))
    parser.add_argument("--generator", type=Path, required=True, help="a folder of the generator's card")
    parser.add_argument(
        "--refiner",
        type=Path,
        action="append",
        required=True,
        help="a language model's folder; repeated, a chain in this order",
    )
    parser.add_argument("--out", type=Path, required=True, help="the folder to write, which must not exist")
    parser.add_argument("--link", action="store_true", help="write links to the given folders, not copies")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Assemble a folder out of inspected ones; returns the exit code."""
    options = _parser().parse_args(arguments)
    try:
        _assemble(COMPOSITIONS[options.card], options)
    except MutoscopeError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(f"{options.out}: ready for `mutoscope weights import {options.card} {options.out}`")
    return 0


def _assemble(composition: Composition, options: argparse.Namespace) -> None:
    names = composition.refiners[: len(options.refiner)]
    if len(names) < len(options.refiner):
        most = len(composition.refiners)
        raise InvalidParameter("refiner", len(options.refiner), f"{composition.id} takes {most} at most")
    if options.out.exists():
        raise InvalidInput(f"{options.out} exists: name a folder that does not")
    refiners = dict(zip(names, options.refiner, strict=True))
    get_card(composition.generator).inspect(options.generator)
    for folder in options.refiner:
        get_card(REFINER).inspect(folder)
    assemble(options.out, options.generator, refiners, copy=not options.link)


if __name__ == "__main__":
    raise SystemExit(main())
