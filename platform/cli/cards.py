"""cards: what can be served, and by whom it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from mutoscope.platform.cli import render

if TYPE_CHECKING:
    from mutoscope.platform.cli.home import Home
    from mutoscope.platform.engine.card import Card


def cards(
    card: Annotated[str | None, typer.Argument(help="Show one card in full.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the declared cards: components, inputs, parameters, live weights, and the workers that serve them.

    Example: mutoscope cards flux-t2i
    """
    from mutoscope.models import registry
    from mutoscope.platform.cli.home import Home

    home = Home()
    chosen = [registry.get_card(card)] if card else list(registry.cards().values())
    described = [describe(home, one) for one in chosen]
    if json:
        render.emit_json(described[0] if card else described)
    elif card:
        _print_card(described[0])
    else:
        render.table(
            ["card", "title", "makes", "weights", "workers"],
            [
                (d["card"], d["title"], list(d["outputs"]), _newest(d["weights"]), len(d["workers"]))
                for d in described
            ],
            empty="no card is declared",
        )


def describe(home: Home, card: Card) -> dict[str, Any]:
    """Everything known about a card, as plain data. The home may have no catalog yet."""
    schema = card.parameters.model_json_schema()["properties"]
    described: dict[str, Any] = {
        "card": card.id,
        "title": card.title,
        "components": {
            part.name: {"classes": list(part.classes), "weighted": part.weighted, "optional": part.optional}
            for part in card.components
        },
        "inputs": {slot.name: {"kind": slot.kind, "required": slot.required} for slot in card.inputs},
        "outputs": {slot.name: {"kind": slot.kind, "description": slot.description} for slot in card.outputs},
        "parameters": {name: entry.get("description", "") for name, entry in schema.items()},
        "weights": {},
        "workers": [],
    }
    if home.has_catalog:
        within = home.settings.lease_seconds
        live = home.catalog.weights.live(card.weights_card)
        described["weights"] = {name: str(version) for name, version in live.items()}
        described["workers"] = [
            {"id": worker.id, "host": worker.host, "pid": worker.pid, "device": worker.device}
            for worker in home.catalog.workers.alive(card=card.id, within_seconds=within)
        ]
    return described


def _newest(weights: dict[str, str]) -> str:
    """``@3`` when all components are at it, else how many versions are live."""
    ordinals = {version.rpartition("@")[2] for version in weights.values()}
    return (
        "none"
        if not weights
        else f"@{ordinals.pop()}"
        if len(ordinals) == 1
        else f"{len(weights)} components"
    )


def _print_card(described: dict[str, Any]) -> None:
    render.say(f"{described['card']}: {described['title']}")
    for section in ("inputs", "outputs", "parameters", "components", "weights"):
        if described[section]:
            render.say(section)
            render.pairs({name: _brief(value) for name, value in described[section].items()}, indent=2)
    render.say("workers")
    for worker in described["workers"]:
        render.say(f"  {worker['id']}  {worker['device']}  {worker['host']} pid {worker['pid']}")
    if not described["workers"]:
        render.say("  none is alive: start one with `mutoscope up`")


def _brief(value: Any) -> str:
    if not isinstance(value, dict):
        return str(value) or "-"
    if "classes" in value:
        return " | ".join(value["classes"]) + (" (optional)" if value["optional"] else "")
    return " ".join(str(item) for item in (value.get("kind"), value.get("description")) if item)
