"""up, down, status, prepare."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from mutoscope.platform.cli import render

if TYPE_CHECKING:
    from mutoscope.platform.cli.home import Home


def up(
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Return when ready and leave it running.")
    ] = False,
    workers: Annotated[int, typer.Option(min=0, max=64, help="GPU workers on this machine.")] = 1,
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Port of the Prefect server.")] = None,
    web_port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port of the artifact gateway.")
    ] = None,
    card: Annotated[
        list[str] | None,
        typer.Option(metavar="CARD", help="What the workers serve; may be repeated (default: all cards)."),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(
            metavar="ROLES",
            help="What this host does, of server, gateway, workers, flows, reconciler, separated by commas: "
            "several hosts can share a database, a store and a Prefect server (PREFECT_API_URL).",
        ),
    ] = None,
) -> None:
    """Start the stack: Prefect server and UI, gateway, GPU workers, flow pool. Ctrl-C drains.

    Example: mutoscope up --detach --workers 2
    """
    from mutoscope.platform.cli import boot, roles
    from mutoscope.platform.cli import detach as detached
    from mutoscope.platform.cli.home import Home

    options = boot.Options(
        roles=roles.chosen(only), workers=workers, cards=tuple(card or ()), port=port, web_port=web_port
    )
    home = Home()
    if detach:
        detached.start(home, options, render.say)
    else:
        boot.Boot(home, options, render.say).run()


def prepare() -> None:
    """Create or upgrade the catalog, tie it to its store, import the weights that ship; then end.

    `up` does this by itself on a host that runs the Prefect server. A cluster does it once per release,
    before all else: every process refuses a catalog of another schema. Repeating it changes nothing.

    Example: mutoscope prepare
    """
    from mutoscope.platform.cli import starter
    from mutoscope.platform.cli.home import Home

    home = Home()
    starter.check_home(home)
    starter.prepare(home, render.say)


def down(
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds to wait for the drain.")] = 120.0,
    kill: Annotated[
        bool, typer.Option("--kill", help="Do not drain. Runs in work are taken again later.")
    ] = False,
) -> None:
    """Stop the stack and wait until it is gone. Queued runs stay queued.

    Example: mutoscope down
    """
    from mutoscope.platform.cli import boot
    from mutoscope.platform.cli.home import Home

    home = Home()
    if boot.halt(home.path, timeout, render.say, kill=kill):
        render.say(f"the stack on {home.path} is stopped")
    else:
        render.say(f"no stack is running on {home.path}")


def status(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show processes, queue and workers. Exit code 1 when no stack runs.

    Example: mutoscope status --json
    """
    from mutoscope.platform.cli import boot
    from mutoscope.platform.cli.home import Home
    from mutoscope.platform.cli.supervisor import is_alive

    home = Home()
    running = boot.is_held(home.path)
    record = home.stack
    report: dict[str, Any] = {"home": str(home.path), "running": running, "state": "stopped", "processes": []}
    if running and record is not None:
        report |= {
            "state": record.state,
            "prefect_ui_url": record.prefect_ui_url,
            "prefect_api_url": record.prefect_api_url,
            "web_url": record.web_url,
            "processes": [
                {"name": p.name, "pid": p.pid, "alive": is_alive(p), "restarts": p.restarts, "log": p.log}
                for p in record.processes
            ],
        }
    if home.has_catalog:
        report |= {"queue": home.catalog.runs.counts(), "workers": _workers(home)}
    if json:
        render.emit_json(report)
    else:
        _print_status(report)
    if not running:
        raise typer.Exit(1)


def _workers(home: Home) -> list[dict[str, Any]]:
    within = home.settings.lease_seconds
    return [
        {
            "id": worker.id,
            "host": worker.host,
            "pid": worker.pid,
            "device": worker.device,
            "state": worker.state,
            "cards": sorted(worker.cards),
            "features": next((facts.get("features") for facts in worker.cards.values()), None),
            "heartbeat_age": worker.age,
        }
        for worker in home.catalog.workers.alive(within_seconds=within)
    ]


def _print_status(report: dict[str, Any]) -> None:
    if not report["running"]:
        render.say(f"no stack is running on {report['home']}: start one with `mutoscope up`")
    else:
        names = ("state", "home", "prefect_ui_url", "web_url")
        render.pairs({name.removesuffix("_url").replace("_", " "): report[name] for name in names})
        render.say()
        render.table(
            ["process", "pid", "", "restarts", "log"],
            [
                (p["name"], p["pid"], "alive" if p["alive"] else "dead", p["restarts"], p["log"])
                for p in report["processes"]
            ],
            empty="no process",
        )
    if "queue" not in report:
        return
    render.say()
    counts = ", ".join(f"{count} {state}" for state, count in report["queue"].items() if count)
    render.say(f"runs     {counts or 'none yet'}")
    for worker in report["workers"]:
        heard = render.seconds(worker["heartbeat_age"])
        cards = ", ".join(worker["cards"])
        render.say(
            f"worker   {worker['id']}  {worker['state']}  {worker['device']}  {cards}  heard {heard} ago"
        )
        if worker["features"] and worker["features"]["hit_rate"] is not None:
            asked = worker["features"]["hits"] + worker["features"]["misses"]
            kept = render.size(worker["features"]["bytes"])
            render.say(
                f"         {worker['features']['hit_rate']:.0%} of {asked} encodings were cached; {kept} kept"
            )
