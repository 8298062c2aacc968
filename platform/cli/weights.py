"""weights: versions of a card's components, where they came from and what they made."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mutoscope.platform.cli import render

if TYPE_CHECKING:
    from mutoscope.platform.cli.home import Home
    from mutoscope.platform.engine.card import Card

app = typer.Typer(
    no_args_is_help=True,
    help="Versions of components: list, show, import, alias, made, of.\n\n"
    "Example: mutoscope weights list flux-t2i",
)


@app.command("list")
def list_versions(
    card: Annotated[str | None, typer.Argument(help="Only this card's.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List weight versions and the aliases that point at them; runs use the live ones unless told otherwise.

    Example: mutoscope weights list flux-t2i
    """
    from mutoscope.models.registry import get_card
    from mutoscope.platform.cli.home import Home

    home = Home()
    if card is not None:
        get_card(card)
    versions = home.catalog.weights.list(card)
    aliases = home.catalog.weights.aliases(card)
    if json:
        render.emit_json(
            [
                _plain(version)
                | {
                    "live": "live" in aliases.get(str(version), ()),
                    "aliases": aliases.get(str(version), []),
                }
                for version in versions
            ]
        )
        return
    render.table(
        ["version", "aliases", "digest", "age"],
        [
            (str(v), ", ".join(aliases.get(str(v), ())), v.digest[:12], render.age(v.created_at))
            for v in versions
        ],
        empty="no weights yet: `mutoscope up` imports the starter weights",
    )


@app.command("show")
def show(
    version: Annotated[
        str, typer.Argument(help="Such as flux-t2i/transformer@1 or flux-t2i/transformer@live.")
    ],
    tensors: Annotated[bool, typer.Option("--tensors", help="List every tensor.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show one version: its artifact, its files and the run that made it.

    Example: mutoscope weights show flux-t2i/transformer@live --tensors
    """
    from mutoscope.platform.cli import contents
    from mutoscope.platform.cli.home import Home

    home = Home()
    found = home.catalog.weights.get(version)
    artifact = home.catalog.artifacts.get(found.digest)
    described = _plain(found) | {"meta": dict(artifact.meta) if artifact else {}}
    held = contents.contents(home.store, found.digest)
    if json:
        render.emit_json({**described, **held})
    else:
        render.pairs(described | {"created_at": None, "created": render.clock(found.created_at)})
        contents.show(held, tensors=tensors)


@app.command("import")
def import_weights(
    card: Annotated[str, typer.Argument(help="The card the weights are for.")],
    folder: Annotated[Path | None, typer.Argument(help="A folder in diffusers format.")] = None,
    adapter: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Instead of a folder: a LoRA, as diffusers saves it.")
    ] = None,
    alias: Annotated[str | None, typer.Option(help="What runs select the adapter by.")] = None,
    component: Annotated[
        str | None, typer.Option(help="Take only what the adapter changes of this component.")
    ] = None,
    base: Annotated[
        str | None,
        typer.Option(metavar="VERSION", help="What the adapter was made over, if not the live version."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Import a folder of weights and make it live, or an adapter under an alias of its own.

    The same bytes again change nothing.

    Example: mutoscope weights import flux-t2i ./FLUX.1-dev
    Example: mutoscope weights import flux-t2i --adapter ./lora.safetensors --alias my-style
    """
    from mutoscope.models.registry import get_card
    from mutoscope.platform.cli.home import Home
    from mutoscope.platform.errors import InvalidParameter
    from mutoscope.platform.orchestration.importing import import_folder

    home = Home()
    declared = get_card(card)
    if (folder is None) == (adapter is None):
        raise InvalidParameter("folder", str(folder), "give a folder, or --adapter FILE instead of one")
    if adapter is not None:
        _import_adapter(home, declared, adapter, alias, component, base, json=json)
        return
    assert folder is not None
    for name, value in (("alias", alias), ("component", component), ("base", base)):
        if value is not None:
            raise InvalidParameter(name, value, "it goes with --adapter; a folder becomes live as a whole")
    before = home.catalog.weights.live(card)
    after = import_folder(home.catalog, home.store, declared, folder)
    if json:
        render.emit_json({name: str(version) for name, version in after.items()})
        return
    render.table(
        ["component", "version", ""],
        [(name, str(v), "unchanged" if before.get(name) == v else "new, live") for name, v in after.items()],
        empty="the folder holds nothing",
    )


def _import_adapter(
    home: Home,
    card: Card,
    adapter: Path,
    alias: str | None,
    component: str | None,
    base: str | None,
    *,
    json: bool,
) -> None:
    from mutoscope.platform.errors import InvalidParameter
    from mutoscope.platform.orchestration.adapting import import_adapter

    if alias is None:
        raise InvalidParameter("alias", None, "name the adapter with --alias; runs select it by that")
    before = home.catalog.weights.aliased(card.id, alias)
    after = import_adapter(
        home.catalog, home.store, card, adapter, alias=alias, component=component, base=base
    )
    if json:
        render.emit_json({name: str(version) for name, version in after.items()})
        return
    render.table(
        ["component", "version", ""],
        [
            (name, str(v), "unchanged" if before.get(name) == v else f"new, {alias}")
            for name, v in after.items()
        ],
        empty="the adapter changes nothing",
    )
    render.say(f"select it with --weights {card.id}@{alias}")


@app.command("alias")
def alias(
    name: Annotated[str, typer.Argument(help="Such as candidate; live is what runs use unasked.")],
    version: Annotated[str, typer.Argument(help="Such as flux-t2i/transformer@12.")],
) -> None:
    """Point an alias of a component at one of its versions. Where it pointed before stays on record.

    Example: mutoscope weights alias candidate flux-t2i/transformer@12
    """
    from mutoscope.platform.cli.home import Home

    home = Home()
    found = home.catalog.weights.get(version)
    home.catalog.weights.set_alias(name, found)
    render.say(f"{found.card}/{found.component}@{name} is {found}")


@app.command("made")
def made(
    version: Annotated[str, typer.Argument(help="Such as flux-t2i/transformer@1.")],
    kind: Annotated[str | None, typer.Option(help="Only artifacts of this kind.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Artifacts of a page.")] = 100,
    after: Annotated[str | None, typer.Option(help="Go on after a page: what it ended with.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the artifacts that runs made directly with this version, newest first, a page at a time.

    Example: mutoscope weights made flux-t2i/transformer@1 --kind image
    """
    from mutoscope.platform.cli.home import Home
    from mutoscope.platform.refs import check_kind

    check_kind(kind)
    home = Home()
    found = home.catalog.weights.get(version)
    kinds = (kind,) if kind is not None else ()
    page = home.catalog.lineage.made(found.digest, kinds=kinds, limit=limit, after=after)
    if json:
        render.emit_json(asdict(page))
        return
    render.table(
        ["artifact", "size", "run", "state", "age"],
        [
            (
                str(one.ref),
                render.size(one.ref.size),
                one.run_id,
                "" if one.present else "bytes collected",
                render.age(one.created_at),
            )
            for one in page.makings
        ],
        empty=f"{found} has made nothing yet" if after is None else "that was all",
    )
    if page.next is not None:
        render.say(f"more: --after {page.next}")


@app.command("of")
def weights_of(
    reference: Annotated[str, typer.Argument(help="Such as video:3fa9.")],
    history: Annotated[
        bool, typer.Option("--history", help="Also the weights that those were trained with, and so on.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the weight versions that made an artifact, through all its inputs, and the run that used each.

    Example: mutoscope weights of video:3fa9
    """
    from mutoscope.platform.cli.home import Home
    from mutoscope.platform.cli.lineage import resolve

    home = Home()
    uses = home.catalog.lineage.weights_of(resolve(home, reference), history=history)
    if json:
        render.emit_json([asdict(use) for use in uses])
        return
    render.table(
        ["run", "card", "component", "version", "digest", "state"],
        [
            (
                use.run_id,
                use.card,
                use.component,
                " = ".join(str(version) for version in use.versions),
                use.digest[:12],
                "" if use.present else "bytes collected",
            )
            for use in uses
        ],
        empty="no weights made it",
    )


def _plain(version: Any) -> dict[str, Any]:
    return {
        "version": str(version),
        "digest": version.digest,
        "created_at": version.created_at,
        "parent": version.parent_id,
        "run": version.produced_by_run,
        "metrics": version.metrics,
    }
