"""card: what a folder of weights is, and whether the card it fits keeps its promises with it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mutoscope.platform.cli import render

if TYPE_CHECKING:
    from collections.abc import Callable

    from mutoscope.platform.cli.home import Home
    from mutoscope.platform.engine.card import Card
    from mutoscope.platform.engine.instance import Instance
    from mutoscope.platform.engine.request import Result

app = typer.Typer(no_args_is_help=True, help="Try a folder of weights.")

STEPS = 3


@app.callback()
def _root() -> None:
    """Keeps `check` a command of its own while it is the only one."""


@app.command()
def check(
    folder: Annotated[Path, typer.Argument(help="A folder of weights, such as one saved by diffusers.")],
    card: Annotated[
        str | None, typer.Option("--card", help="Check it as this card; else the first that fits.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Tell which cards a folder fits, load it, serve one small request and ask every parity gate.

    Nothing is imported. Exit code 1: a gate does not hold; 2: the folder fits no card.

    Example: mutoscope card check ./FLUX.1-dev
    """
    from mutoscope.models.registry import get_card
    from mutoscope.platform.cli.home import Home
    from mutoscope.platform.errors import InvalidFolder

    fits, refused = fitting(folder) if card is None else ([get_card(card).id], {})
    found: dict[str, Any] = {"folder": str(folder), "fits": fits, "refused": refused}
    if not json:
        render.say(f"folder    {folder}")
        render.say(f"fits      {', '.join(fits) or 'no card'}")
        for name, reason in refused.items() if not fits else ():
            render.say(f"  not {name}: {reason}")
    if not fits and not json:
        raise InvalidFolder(f"{folder} fits no card: see the reasons above")
    if fits:
        found |= attempt(Home(), get_card(fits[0]), folder, say=ignore if json else render.say)
    if json:
        render.emit_json(found)
    if not found.get("ok"):
        raise typer.Exit(1 if fits else 2)


def attempt(home: Home, card: Card, folder: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """Load the folder as the card, serve a small request and ask the gates; what came of it.

    Args:
        say: told each result as soon as it is there.
    """
    from mutoscope.platform.cli.parity import conclusion, examine, load
    from mutoscope.platform.engine.footprint import weights_bytes
    from mutoscope.workers.device import open_device

    device = open_device(home.settings)
    instance, seconds = _timed(lambda: load(home, device, card, folder))
    size = weights_bytes(instance.components)
    say(f"loads     as {card.id}, {render.size(size)} in {seconds:.1f} s")
    found: dict[str, Any] = {"loaded": {"card": card.id, "bytes": size, "seconds": round(seconds, 3)}}
    result, seconds = _timed(lambda: serve_small(instance))
    made = outputs(result)
    say(f"serves    {', '.join(f'{slot}: {what}' for slot, what in made.items())} in {seconds:.1f} s")
    for warning in result.warnings:
        say(f"  {warning}")
    found["served"] = {"seconds": round(seconds, 3), "outputs": made, "warnings": list(result.warnings)}
    examined = examine(home, device, instance)
    for line in (*examined.lines(), conclusion(examined)):
        say(line)
    return {**found, **examined.plain()}


def ignore(line: str) -> None:
    """Where JSON is wanted, lines are not."""


def fitting(folder: Path) -> tuple[list[str], dict[str, str]]:
    """Cards whose inspector accepts the folder, and why the others do not, in a line each."""
    from mutoscope.models.registry import cards
    from mutoscope.platform.errors import InvalidFolder

    fits, refused = [], {}
    for name, declared in cards().items():
        if not declared.components or declared.weights_of is not None:
            continue
        try:
            declared.inspect(folder)
        except InvalidFolder as error:
            refused[name] = str(error)
        else:
            fits.append(name)
    return fits, refused


def serve_small(instance: Instance) -> Result:
    """The card's example, in few steps, served alone."""
    from mutoscope.platform.engine.engine import Engine
    from mutoscope.platform.engine.example import example_request

    known = instance.card.parameters.model_fields
    steps: dict[str, Any] = {"num_inference_steps": STEPS} if "num_inference_steps" in known else {}
    return Engine().run(instance, example_request(instance.card, instance.recipe, **steps))


def outputs(result: Result) -> dict[str, str]:
    """What each output slot holds, in a few words: arrays by type and shape."""
    return {
        slot: f"{output.kind} {_described(output.value)}".strip() for slot, output in result.outputs.items()
    }


def _described(value: Any) -> str:
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{value.dtype} {tuple(value.shape)}"
    if isinstance(value, dict):
        return ", ".join(_described(part) for part in value.values())
    return render.shorten(value, 60) if isinstance(value, str) else ""


def _timed(work: Any) -> tuple[Any, float]:
    started = time.perf_counter()
    return work(), time.perf_counter() - started
