"""weights: versions of a card's components, where they came from and what they made."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from mutoscope.platform.cli import render

app = typer.Typer(
    no_args_is_help=True,
    help="Versions of components: list, show, import, made.\n\nExample: mutoscope weights list flux-t2i",
)


@app.command("list")
def list_versions(
    card: Annotated[str | None, typer.Argument(help="Only this card's.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List weight versions and which are live.

    Example: mutoscope weights list flux-t2i
    """
    from mutoscope.models.registry import get_card
    from mutoscope.platform.cli.home import Home

    home = Home()
    if card is not None:
        get_card(card)
    versions = home.catalog.weights.list(card)
    live = {
        str(version)
        for name in {version.card for version in versions}
        for version in home.catalog.weights.live(name).values()
    }
    if json:
        render.emit_json([_plain(version) | {"live": str(version) in live} for version in versions])
        return
    render.table(
        ["version", "live", "digest", "age"],
        [
            (str(v), "live" if str(v) in live else "", v.digest[:12], render.age(v.created_at))
            for v in versions
        ],
        empty="no weights yet: `mutoscope up` imports the starter weights",
    )


@app.command("show")
def show(
    version: Annotated[
        str, typer.Argument(help="Such as flux-t2i/transformer@1 or flux-t2i/transformer@live.")
    ],
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show one version: its artifact, its files and the run that made it.

    Example: mutoscope weights show flux-t2i/transformer@live
    """
    from mutoscope.platform.cli.home import Home

    home = Home()
    found = home.catalog.weights.get(version)
    artifact = home.catalog.artifacts.get(found.digest)
    described = _plain(found) | {"meta": dict(artifact.meta) if artifact else {}}
    if json:
        render.emit_json(described)
    else:
        render.pairs(described)


@app.command("import")
def import_weights(
    card: Annotated[str, typer.Argument(help="The card the folder holds weights for.")],
    folder: Annotated[Path, typer.Argument(help="A folder in diffusers format.")],
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Import a folder of weights and make it live. The same bytes again change nothing.

    Example: mutoscope weights import flux-t2i ./FLUX.1-dev
    """
    from mutoscope.models.registry import get_card
    from mutoscope.platform.cli.home import Home
    from mutoscope.platform.orchestration.importing import import_folder

    home = Home()
    declared = get_card(card)
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


@app.command("made")
def made(
    version: Annotated[str, typer.Argument(help="Such as flux-t2i/transformer@1.")],
    kind: Annotated[str | None, typer.Option(help="Only artifacts of this kind.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 100,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the artifacts that runs made directly with this version.

    Example: mutoscope weights made flux-t2i/transformer@1 --kind image
    """
    from mutoscope.platform.cli.home import Home

    home = Home()
    found = home.catalog.weights.get(version)
    made_here = home.catalog.lineage.made_directly(found.digest)
    artifacts = [ref for ref, _ in made_here if kind is None or ref.kind == kind][:limit]
    if json:
        render.emit_json([artifact.to_dict() for artifact in artifacts])
        return
    render.table(
        ["artifact", "size", "media type"],
        [(str(ref), render.size(ref.size), ref.media_type) for ref in artifacts],
        empty=f"{found} has made nothing yet",
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
