"""`python -m mutoscope.workers`: start one worker and serve until SIGTERM.

For a group of devices, `torchrun --nproc-per-node N -m mutoscope.workers` starts a rank each (see `group`).

Exit codes: 0 after draining; 2 for configuration that cannot work, with one line on stderr; 1 for a defect,
and for a rank whose group has lost another one.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mutoscope.models.registry import cards, get_card
from mutoscope.platform.engine import numerics
from mutoscope.platform.errors import MutoscopeError
from mutoscope.platform.settings import Settings, get_settings

if TYPE_CHECKING:
    from mutoscope.platform.artifacts import ArtifactStore
    from mutoscope.platform.engine.card import Card
    from mutoscope.workers.device import Device
    from mutoscope.workers.group import Group
    from mutoscope.workers.shutdown import Shutdown


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a worker; returns the exit code."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(
        level=logging.INFO,
        stream=sys.stderr,
        format=f"%(asctime)s.%(msecs)03d %(levelname)s {options.name} %(message)s",
        datefmt="%Y-%m-%dT%H:%M:%S",
    )
    try:
        _serve(options)
    except MutoscopeError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _serve(options: argparse.Namespace) -> None:
    # Signals count from the first moment: a worker asked to end while torch is still being imported must not
    # serve.
    from mutoscope.workers.shutdown import Shutdown

    shutdown = Shutdown()
    shutdown.install()
    settings = get_settings()
    serving = [get_card(card_id) for card_id in options.card] if options.card else list(cards().values())

    from mutoscope.platform.artifacts import ArtifactStore
    from mutoscope.workers.device import open_device
    from mutoscope.workers.follower import Follower
    from mutoscope.workers.group import Group

    group = Group.join()
    device = open_device(settings, int(os.environ.get("LOCAL_RANK", "0")))
    store = ArtifactStore.of(settings)
    try:
        if group is not None:
            group.require_alike("contract", device.contract_digest)
            group.require_alike("cards", " ".join(map(numerics.card_digest, serving)))
        if group is not None and group.rank:
            Follower(settings, store, device, serving, group).run()
        else:
            _work(options, settings, store, device, serving, shutdown, group)
    finally:
        if group is not None:
            group.leave()


def _work(
    options: argparse.Namespace,
    settings: Settings,
    store: ArtifactStore,
    device: Device,
    serving: Sequence[Card],
    shutdown: Shutdown,
    group: Group | None,
) -> None:
    from mutoscope.platform.catalog import Catalog
    from mutoscope.platform.custody.users import register
    from mutoscope.workers.worker import Limits, Worker

    catalog = Catalog.open(settings.database_url)
    limits = Limits(drain_seconds=options.drain_seconds, idle_exit_seconds=options.idle_exit)
    try:
        store.check_writable()
        register(catalog, store)
        Worker(settings, catalog, store, device, serving, limits=limits, shutdown=shutdown, group=group).run()
    finally:
        catalog.close()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m mutoscope.workers",
        description="Serve queued runs. SIGTERM drains; a second one stops at the next step boundary.",
    )
    parser.add_argument(
        "--card", action="append", metavar="ID", help="serve this card; may be repeated (default: all)"
    )
    parser.add_argument(
        "--name", default="worker", help="how the log lines name this worker (default: %(default)s)"
    )
    parser.add_argument(
        "--drain-seconds",
        type=float,
        default=30.0,
        metavar="S",
        help="how long running work may go on after SIGTERM before it is handed back (default: %(default)s)",
    )
    parser.add_argument(
        "--idle-exit", type=float, metavar="S", help="end after being without work for this long"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
