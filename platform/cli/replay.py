"""replay: make an artifact again from its record, and compare digests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from mutoscope.platform.cli import render

if TYPE_CHECKING:
    from mutoscope.platform.catalog import RunRecord
    from mutoscope.platform.cli.home import Home
    from mutoscope.platform.orchestration.replay import Replay


def replay(
    reference: Annotated[
        str, typer.Argument(help="An artifact (video:3fa9), or the beginning of a run's id.")
    ],
    chain: Annotated[
        bool, typer.Option("--chain", help="Also everything upstream, from the first run on.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Regenerate from the record, past the memo, and compare digests. Exit code 1 if any differs.

    Example: mutoscope replay video:3fa9 --chain
    """
    import asyncio

    from mutoscope.platform.cli.follow import follower
    from mutoscope.platform.cli.home import Home
    from mutoscope.platform.orchestration.replay import replay_run

    home = Home()
    run = producer(home, reference)
    with follower(render.say, quiet=json) as watch:
        replays = [
            asyncio.run(replay_run(one.id, watch=watch, runtime=home.runtime))
            for one in ([*upstream_runs(home, run), run] if chain else [run])
        ]
    if json:
        render.emit_json([_plain(one) for one in replays])
    else:
        for one in replays:
            _print(one)
    if not all(one.equal for one in replays):
        raise typer.Exit(1)


def producer(home: Home, reference: str) -> RunRecord:
    """The engine run that a reference names, or that made the artifact it names.

    Raises:
        UnknownReference: nothing goes by that name.
        InvalidInput: it was not made by an engine run.
    """
    from mutoscope.platform.errors import InvalidInput, UnknownReference

    try:
        ref = home.catalog.artifacts.resolve(reference)
    except UnknownReference as unknown:
        try:
            return home.catalog.runs.find(reference)
        except UnknownReference:
            raise unknown from None
    made_by = home.catalog.runs.generated_by(ref.digest)
    engine = [run for run in made_by if run.replayable and run.state == "succeeded"]
    if not engine:
        how = f"came from an {made_by[0].kind} run" if made_by else "has no run on record"
        raise InvalidInput(f"{ref} {how}: replay an artifact that a card made")
    return engine[0]


def upstream_runs(home: Home, run: RunRecord) -> list[RunRecord]:
    """The engine runs that the run depends on through its inputs, each after those it depends on itself."""
    ordered: dict[str, RunRecord] = {}

    def visit(current: RunRecord) -> None:
        for ref in home.catalog.runs.inputs(current.id).values():
            for source in home.catalog.runs.generated_by(ref.digest)[:1]:
                if source.replayable and source.id not in ordered:
                    visit(source)
                    ordered[source.id] = source

    visit(run)
    return list(ordered.values())


def _print(replayed: Replay) -> None:
    original = replayed.original
    render.say(f"{original.card} seed {original.seed}, run {original.id}, replayed as {replayed.run.id}")
    for slot in sorted({*replayed.expected, *replayed.outputs}):
        expected, got = replayed.expected.get(slot), replayed.outputs.get(slot)
        if slot in replayed.differing:
            render.say(f"  {slot:<10} DIFFERS: recorded {expected}, now {got}")
        else:
            render.say(f"  {slot:<10} equal   {expected}")
    if not replayed.equal:
        cause = "the card's code has changed since" if replayed.changed_code else "same code, other bytes"
        render.say(f"  {cause}; a determinism incident is on record")


def _plain(replayed: Replay) -> dict[str, Any]:
    return {
        "card": replayed.original.card,
        "original": replayed.original.id,
        "replay": replayed.run.id,
        "equal": replayed.equal,
        "differing": list(replayed.differing),
        "changed_code": replayed.changed_code,
        "outputs": {
            slot: {
                "recorded": replayed.expected[slot].digest if slot in replayed.expected else None,
                "now": replayed.outputs[slot].digest if slot in replayed.outputs else None,
            }
            for slot in sorted({*replayed.expected, *replayed.outputs})
        },
    }
