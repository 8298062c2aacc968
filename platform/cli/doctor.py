"""doctor: is everything here that a run needs? Each check is one line with a remedy."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from mutoscope.platform.cli import render
from mutoscope.platform.errors import InvalidParameter
from mutoscope.platform.ids import new_id

if TYPE_CHECKING:
    from mutoscope.platform.cli.home import Home

PACKAGES = ("torch", "diffusers", "transformers", "prefect", "sqlalchemy", "av", "safetensors", "numpy")
PROBE = b"mutoscope doctor\n"
ENCODER = "libx264"
LOW_DISK_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report. A `fail` makes the command end with exit code 1; `remedy` says what to do."""

    check: str
    level: Literal["ok", "warn", "fail"]
    detail: str
    remedy: str = ""


def doctor(
    card: Annotated[
        str | None, typer.Option("--card", help="Check this card instead: what serving must not change.")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--folder", help="With --card: weights to load instead of the live ones.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check Python, packages, home, store, catalog, servers, workers, encoder and weights.

    With --card: load the card as a worker here would, and ask its parity gates. Serial, interleaved and
    batched serving must return equal bytes, capture must change nothing, rollouts must repeat, and their
    log-probabilities must be those of the recorded weights. Each gate is also shown a defect to catch.

    Example: mutoscope doctor --card flux-t2i
    """
    if card is not None:
        _examine_card(card, folder, json)
        return
    if folder is not None:
        raise InvalidParameter("folder", str(folder), "name the card that it is for with --card")
    findings = list(examine())
    if json:
        render.emit_json([asdict(finding) for finding in findings])
    else:
        for finding in findings:
            remedy = f"; {finding.remedy}" if finding.remedy else ""
            render.say(f"{finding.level:<4}  {finding.check:<10} {finding.detail}{remedy}")
    if any(finding.level == "fail" for finding in findings):
        raise typer.Exit(1)


def _examine_card(card_id: str, folder: Path | None, json: bool) -> None:
    from mutoscope.models.registry import get_card
    from mutoscope.platform.cli.home import Home
    from mutoscope.platform.cli.parity import conclusion, load
    from mutoscope.platform.cli.parity import examine as examine_instance
    from mutoscope.workers.device import open_device

    home, card = Home(), get_card(card_id)
    if card.run_kind == "train_step":
        raise InvalidParameter("card", card_id, "a trainer serves no requests: name a card that does")
    device = open_device(home.settings)
    examined = examine_instance(home, device, load(home, device, card, folder))
    if json:
        render.emit_json(examined.plain())
    else:
        for line in (f"card      {card_id} on {examined.device}", *examined.lines(), conclusion(examined)):
            render.say(line)
    if not examined.report.ok:
        raise typer.Exit(1)


def examine() -> Iterator[Finding]:
    """All checks, in the order in which one depends on another. A check that trips over is a finding too."""
    from mutoscope.platform.cli.home import Home

    home = Home()
    for check in (_python, _packages, _encoder, _home, _store, _server, _gateway):
        yield from _guarded(check, home)
    catalog = list(_guarded(_catalog, home))
    yield from catalog
    if all(finding.level != "fail" for finding in catalog):
        for check in (_workers, _weights):
            yield from _guarded(check, home)


def _guarded(check: Callable[[Home], Iterator[Finding]], home: Home) -> Iterator[Finding]:
    from mutoscope.platform.errors import MutoscopeError

    try:
        yield from check(home)
    except (MutoscopeError, OSError) as error:
        yield Finding(check.__name__.removeprefix("_"), "fail", " ".join(str(error).split()))


def _python(home: Home) -> Iterator[Finding]:
    version = ".".join(str(part) for part in sys.version_info[:3])
    yield Finding("python", "ok", f"{version} at {sys.executable}")


def _packages(home: Home) -> Iterator[Finding]:
    from importlib.metadata import PackageNotFoundError, version

    found, missing = [], []
    for name in PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            missing.append(name)
    if missing:
        yield Finding(
            "packages", "fail", f"missing: {', '.join(missing)}", f"pip install {' '.join(missing)}"
        )
    else:
        yield Finding("packages", "ok", ", ".join(found))


def _encoder(home: Home) -> Iterator[Finding]:
    import av

    if ENCODER in av.codecs_available:
        yield Finding("encoder", "ok", f"{ENCODER} in av {av.__version__}")
    else:
        yield Finding(
            "encoder", "fail", f"av {av.__version__} lacks {ENCODER}", "pip install av, not a system build"
        )


def _home(home: Home) -> Iterator[Finding]:
    import os
    import shutil

    folder = home.path
    while not folder.exists():
        folder = folder.parent
    if not os.access(folder, os.W_OK):
        yield Finding("home", "fail", f"{folder} is not writable", "set MUTOSCOPE_HOME to a writable folder")
        return
    free = shutil.disk_usage(folder).free
    detail = f"{home.path}, {render.size(free)} free"
    if free < LOW_DISK_BYTES:
        yield Finding("home", "warn", detail, "free some space, or set MUTOSCOPE_HOME to another disk")
    else:
        yield Finding("home", "ok", detail)


def _store(home: Home) -> Iterator[Finding]:
    home.store.check_writable()
    # Of its own each time: two doctors at once do not take each other's away.
    probe = PROBE + new_id().encode()
    ref = home.store.put(probe, kind="text", media_type="text/plain")
    sound = home.store.get(ref.digest) == probe
    home.store.trash(ref.digest)
    home.store.purge(ref.digest)
    if sound:
        yield Finding("store", "ok", f"{home.store.root_url} takes and gives bytes")
    else:
        yield Finding(
            "store", "fail", f"{home.store.root_url} gives other bytes", "check its disk or its cache"
        )
    aside = [damaged.name for damaged in home.store.quarantined()]
    if aside:
        detail = f"{len(aside)} damaged in quarantine, such as {aside[0]}"
        yield Finding("store", "warn", detail, "see what they belong to with `mutoscope fsck`")


def _catalog(home: Home) -> Iterator[Finding]:
    counts = home.catalog.runs.counts()
    shown = ", ".join(f"{count} {state}" for state, count in counts.items()) or "no run yet"
    yield Finding("catalog", "ok", f"{home.catalog.url}, schema as expected, {shown}")
    incidents = home.catalog.incidents.counts()
    if incidents:
        newest = home.catalog.incidents.list(limit=1)[0]
        counted = ", ".join(f"{count} {kind}" for kind, count in incidents.items())
        detail = f"{counted}; newest {render.age(newest.created_at)}"
        yield Finding("incidents", "warn", detail, "look with `mutoscope incidents list`")


def _server(home: Home) -> Iterator[Finding]:
    from mutoscope.platform.cli.api import answers
    from mutoscope.platform.cli.services import log_folder

    record = home.stack
    if record is None:
        yield Finding("server", "warn", "no stack is running on this home", "start one with `mutoscope up`")
    elif answers(f"{record.prefect_api_url}/health"):
        yield Finding("server", "ok", f"Prefect answers at {record.prefect_api_url}")
    else:
        yield Finding(
            "server",
            "fail",
            f"Prefect does not answer at {record.prefect_api_url}",
            f"see {log_folder(home.path) / 'prefect-server.log'}, or `mutoscope down` and `mutoscope up`",
        )


def _gateway(home: Home) -> Iterator[Finding]:
    from mutoscope.platform.cli.api import answers
    from mutoscope.platform.cli.services import log_folder

    record = home.stack
    if record is None:
        return
    if answers(f"{record.web_url}/health"):
        yield Finding("gateway", "ok", f"artifacts open at {record.web_url}")
    else:
        yield Finding(
            "gateway",
            "fail",
            f"nothing answers at {record.web_url}",
            f"see {log_folder(home.path) / 'gateway.log'}",
        )


def _workers(home: Home) -> Iterator[Finding]:
    from mutoscope.models.registry import cards

    alive = home.catalog.workers.alive(within_seconds=home.settings.lease_seconds)
    for card in cards():
        serving = [worker for worker in alive if card in worker.cards]
        if serving:
            devices = ", ".join(sorted({worker.device for worker in serving}))
            yield Finding("workers", "ok", f"{card}: {len(serving)} alive on {devices}")
        else:
            yield Finding("workers", "warn", f"{card}: none is alive", "start one with `mutoscope up`")


def _weights(home: Home) -> Iterator[Finding]:
    """Every file of every live component is there; the bytes of the small ones are read and verified."""
    from mutoscope.models.registry import cards
    from mutoscope.models.starter.folders import starter_folder
    from mutoscope.platform.cli.integrity import damaged_files

    for card, declared in cards().items():
        if not any(part.weighted for part in declared.components) or declared.weights_of is not None:
            continue
        live = home.catalog.weights.live(card)
        if not live and starter_folder(card) is None:
            yield Finding("weights", "ok", f"{card}: none imported, and none ship with the package")
            continue
        if not live:
            yield Finding("weights", "warn", f"{card}: none", "`mutoscope up` imports the starter weights")
            continue
        damaged = damaged_files(home.store, [version.digest for version in live.values()])
        if damaged:
            yield Finding(
                "weights",
                "fail",
                f"{card}: {damaged[0]}",
                f"`mutoscope weights import {card} FOLDER` repairs it",
            )
        else:
            yield Finding("weights", "ok", f"{card}: {', '.join(str(version) for version in live.values())}")
