"""card: what a folder of weights is, and whether the card it fits keeps its promises with it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mutoscope.platform.cli import render

if TYPE_CHECKING:
    from mutoscope.platform.engine.instance import Instance
    from mutoscope.platform.engine.request import Request, Result

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
    from mutoscope.platform.cli.parity import examine, load, show
    from mutoscope.platform.errors import InvalidFolder

    home = Home()
    fits, refused = fitting(folder) if card is None else ([get_card(card).id], {})
    if not json:
        render.say(f"folder    {folder}")
        render.say(f"fits      {', '.join(fits) or 'no card'}")
        for name, reason in refused.items() if not fits else ():
            render.say(f"  not {name}: {reason}")
    if not fits:
        if json:
            render.emit_json({"folder": str(folder), "fits": [], "refused": refused})
            raise typer.Exit(2)
        raise InvalidFolder(f"{folder} fits no card: see the reasons above")

    from mutoscope.platform.engine.footprint import weights_bytes
    from mutoscope.workers.device import open_device

    device = open_device(home.settings)
    instance, seconds = _timed(lambda: load(home, device, get_card(fits[0]), folder))
    loaded = {"card": fits[0], "bytes": weights_bytes(instance.components), "seconds": round(seconds, 3)}
    request = small_request(instance)
    result, seconds = _timed(lambda: serve(instance, request))
    served = {"seconds": round(seconds, 3), "outputs": outputs(result), "warnings": list(result.warnings)}
    if not json:
        render.say(f"loads     as {fits[0]}, {render.size(loaded['bytes'])} in {loaded['seconds']:.1f} s")
        made = ", ".join(f"{slot} {shape}" for slot, shape in served["outputs"].items())
        render.say(f"serves    {made} in {served['seconds']:.1f} s")
        for warning in served["warnings"]:
            render.say(f"  {warning}")
    examined = examine(home, device, instance)
    if json:
        facts = {"folder": str(folder), "fits": fits, "refused": refused, "loaded": loaded, "served": served}
        render.emit_json({**facts, **examined.plain()})
    else:
        show(examined)
    if not examined.report.ok:
        raise typer.Exit(1)


def fitting(folder: Path) -> tuple[list[str], dict[str, str]]:
    """Cards whose inspector accepts the folder, and why the others do not, in a line each."""
    from mutoscope.models.registry import cards
    from mutoscope.platform.errors import InvalidFolder

    fits, refused = [], {}
    for name, declared in cards().items():
        if not declared.components:
            continue
        try:
            declared.inspect(folder)
        except InvalidFolder as error:
            refused[name] = str(error)
        else:
            fits.append(name)
    return fits, refused


def small_request(instance: Instance) -> Request:
    """The card's example in few steps."""
    from mutoscope.platform.engine.example import example_request

    known = instance.card.parameters.model_fields
    steps = {"num_inference_steps": STEPS} if "num_inference_steps" in known else {}
    return example_request(instance.card, instance.recipe, **steps)


def serve(instance: Instance, request: Request) -> Result:
    """Serve it alone."""
    from mutoscope.platform.engine.engine import Engine

    return Engine().run(instance, request)


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
