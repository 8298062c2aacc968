"""export, import: artifacts with everything they came from, carried between homes as one file."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mutoscope.platform.cli import render
from mutoscope.platform.cli.progress import progress

if TYPE_CHECKING:
    from mutoscope.platform.custody.archive_import import Imported


def export(
    references: Annotated[
        list[str],
        typer.Argument(
            help="Artifacts (video:3fa9), weights (flux-t2i/transformer@1), beginnings of ids of runs or "
            "workflow runs; the file last.",
            metavar="REF... FILE",
        ),
    ],
    without_weights: Annotated[
        bool,
        typer.Option("--without-weights", help="Leave out the bytes of weights; their records go along."),
    ] = False,
    rows_only: Annotated[
        bool, typer.Option("--rows-only", help="Records alone: lineage without a byte of any artifact.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Write artifacts, and all they came from, to one tar that can be read without Mutoscope.

    Equal content gives equal files. The layout is described in docs/archive.md and in the archive.

    Example: mutoscope export video:3fa9 flux-t2i/transformer@live clip.tar
    """
    from mutoscope.platform.cli.home import Home
    from mutoscope.platform.custody.archive_export import export_archive
    from mutoscope.platform.errors import InvalidInput, InvalidParameter

    *names, target = references
    if not names:
        raise InvalidParameter("arguments", target, "name at least one artifact or run, and the file last")
    if without_weights and rows_only:
        raise InvalidInput("--without-weights and --rows-only: use one of them")
    path = Path(target).expanduser()
    if path.is_dir() or path.suffix != ".tar":
        raise InvalidParameter("file", target, "name the archive last, with the ending .tar")
    home = Home()
    with progress("exporting", in_bytes=True, quiet=json) as show:
        written = export_archive(
            home.catalog,
            home.store,
            names,
            path,
            include="none" if rows_only else "without_weights" if without_weights else "all",
            progress=partial(show, "exporting"),
        )
    said = written.manifest
    if json:
        render.emit_json({"file": str(written.path), "size": written.size, **asdict(said)})
        return
    render.pairs(
        {
            "archive": f"{written.path} ({render.size(written.size)})",
            "artifacts": said.rows["artifacts"],
            "with bytes": f"{said.objects} ({render.size(said.object_bytes)})" if said.objects else "none",
            "left out": said.left_out or None,
            "collected": said.collected or None,
            "runs": said.rows["runs"],
            "workflow runs": said.rows["workflow_runs"] or None,
            "weight versions": said.rows["weight_versions"] or None,
        }
    )


def import_(
    file: Annotated[Path, typer.Argument(help="An archive that `mutoscope export` wrote.")],
    alias: Annotated[
        str | None,
        typer.Option(help="Point this alias (such as live) where it pointed at home; others stay."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the whole archive and say what would change.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Bring an archive into this home, merged by digest. The same archive again changes nothing.

    A home that has never been up gets its catalog. A file that is damaged, incomplete or no archive changes
    nothing either.

    Example: mutoscope import clip.tar --dry-run
    """
    from mutoscope.platform.catalog import Catalog
    from mutoscope.platform.cli.home import Home
    from mutoscope.platform.custody.archive_import import import_archive
    from mutoscope.platform.custody.pages import Pages

    home = Home()
    if not home.has_catalog and not dry_run:
        Catalog.migrate(home.settings.database_url)
    with progress("importing", in_bytes=True, quiet=json) as show:
        done = import_archive(
            home.catalog,
            home.store,
            file.expanduser(),
            alias=alias,
            dry_run=dry_run,
            progress=partial(show, "importing"),
        )
    if done.merged.workflow_runs and not dry_run:
        Pages(home.catalog, home.store).write(done.merged.workflow_runs)
    if json:
        render.emit_json(_plain(done))
    else:
        _print(done)


def _print(done: Imported) -> None:
    merged = done.merged
    if not done.changed:
        render.say("nothing is new: all of it is here already")
        return
    render.pairs(
        {
            "would be new" if done.dry_run else "new": ", ".join(
                _counted(count, table.replace("_", " ")) for table, count in merged.new.items() if count
            ),
            "bytes to store" if done.dry_run else "bytes stored": (
                f"{_counted(done.stored, 'objects')} ({render.size(done.stored_bytes)})"
            )
            if done.stored
            else None,
            "without bytes": (done.manifest.left_out + done.manifest.collected) or None,
            "moved": ", ".join(merged.moved) or None,
        }
    )
    for there, here in merged.renamed.items():
        render.say(f"{there} is {here} here")
    if merged.disagreements:
        render.say(
            f"{_counted(merged.disagreements, 'runs')} made other bytes than equal runs here: "
            "see `mutoscope incidents list`"
        )
    for root in done.manifest.roots:
        render.say(root.name)


def _counted(count: int, things: str) -> str:
    """A count of rows: 1 run, 4 runs, 1 weight alias, 3,000 artifacts."""
    if count == 1:
        things = things.removesuffix("es") if things.endswith("ses") else things.removesuffix("s")
    return f"{count:,} {things}"


def _plain(done: Imported) -> dict[str, Any]:
    return {
        "roots": [asdict(root) for root in done.manifest.roots],
        "dry_run": done.dry_run,
        "changed": done.changed,
        "stored": done.stored,
        "stored_bytes": done.stored_bytes,
        "new": done.merged.new,
        "renamed": done.merged.renamed,
        "moved": done.merged.moved,
        "disagreements": done.merged.disagreements,
    }
