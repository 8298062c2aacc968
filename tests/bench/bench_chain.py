"""A chain of steps, each taking the artifact of the one before and writing 64 KiB, in several systems.

    python tests/bench/bench_chain.py [--steps 100] [--rounds 3] [--media memory,disk] [--output FILE]

Every system computes the same bytes (checked), as its documentation says, in a process of its own that is
warm before anything is timed; rounds go through the systems in turn, so that drift of the machine hits all
alike. `cold` computes, `again` asks for the same chain once more. The clock runs from the call of the chain
to its last artifact, flow runs and their records included.

What the systems promise differs, and so does what it costs: redun syncs every commit to the disk, the others
leave that to the system. `memory` puts all their files on a file system without a disk, where nobody pays for
syncing and everybody survives a killed process; `disk` is what a user has by default.

Whether a system survives a kill is tried: all of its processes are killed in the middle of a chain, started
again, and asked for the chain once more. It does if the chain ends right and no step that had ended is
computed again, apart from one under way.

Bar: a step of ours, cold, takes no longer than one of the fastest neighbour that records lineage and survives
a kill.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.bench import environment  # noqa: E402
from tests.bench.chain import link, systems  # noqa: E402
from tests.bench.chain.systems import SYSTEMS, Driver, System  # noqa: E402
from tests.bench.prefect_server import prefect_server  # noqa: E402
from tests.support.deadline import until  # noqa: E402

RESULT = ROOT / "tests/bench/results/chain.json"
OURS = ("ours", "ours in a workflow")
MEMORY = Path("/dev/shm")
WARM_UP_STEPS = 3
KILL_STEPS, KILL_AFTER = 12, 5
FEW_STEPS = 4
"""Metaflow starts a process a step: so few steps say what one takes."""


class Bench:
    """The systems on one medium."""

    def __init__(self, chosen: list[System], folder: Path, api_url: str, steps: int) -> None:
        self._chosen = chosen
        self._folder = folder
        self._api_url = api_url
        self._steps = steps
        self._seed = 0

    def measure(self, rounds: int) -> dict[str, dict[str, Any]]:
        """Milliseconds a step, by system."""
        found: dict[str, dict[str, Any]] = {}
        with ExitStack() as stack:
            drivers = [stack.enter_context(self._driver(system)) for system in self._chosen]
            for driver in drivers:
                found[driver.system.name] = {"processes": driver.processes(), "cold": [], "again": []}
                if driver.system.name != "metaflow":
                    driver.run(self._fresh(), WARM_UP_STEPS)
            for number in range(rounds):
                for driver in drivers[number % len(drivers) :] + drivers[: number % len(drivers)]:
                    if driver.system.name == "metaflow" and number:
                        continue  # half a minute a round would tell nothing new
                    self._round(driver, found[driver.system.name])
        return found

    def survival(self, system: System) -> dict[str, Any]:
        """What is left of a chain when all the system's processes are killed in the middle of it."""
        steps, seed = self._steps_of(system, KILL_STEPS), self._fresh()
        journal = self._folder / f"{system.script}-{len(system.arguments)}.journal"
        extra, after = {link.JOURNAL: str(journal)}, min(KILL_AFTER, steps - 2)
        wanted = link.entries(seed, steps)
        with self._driver(system, "kill", extra) as driver:
            driver.begin(seed, steps)
            until(lambda: len(computed(journal, wanted)) >= after, f"{system.name}: the middle", seconds=120)
            driver.kill()
        before = len(computed(journal, wanted))
        with self._driver(system, "kill", extra) as driver:
            seconds = driver.run(seed, steps)
        again = len(computed(journal, wanted)) - steps
        return {
            "steps": steps,
            "computed_before_the_kill": before,
            "computed_again": again,
            "seconds_to_the_end": round(seconds, 3),
            "survives": again <= 1,
        }

    def _round(self, driver: Driver, figures: dict[str, Any]) -> None:
        steps, seed = self._steps_of(driver.system, self._steps), self._fresh()
        figures["steps"] = steps
        figures["cold"].append(driver.run(seed, steps) / steps * 1e3)
        if driver.system.again:
            figures["again"].append(driver.run(seed, steps) / steps * 1e3)

    def _driver(self, system: System, name: str = "measure", extra: Mapping[str, str] = {}) -> Driver:
        home = self._folder / name / f"{system.script}-{len(system.arguments)}"
        return Driver(
            system, home, {**({"PREFECT_API_URL": self._api_url} if system.needs_server else {}), **extra}
        )

    def _fresh(self) -> int:
        self._seed += 1
        return self._seed

    def _steps_of(self, system: System, steps: int) -> int:
        return min(steps, FEW_STEPS) if system.name == "metaflow" else steps


def computed(journal: Path, wanted: list[str]) -> list[str]:
    """Those of the wanted steps that were computed so far, as often as they were."""
    lines = journal.read_text().split() if journal.exists() else []
    return [line for line in lines if line in wanted]


def folders(media: str) -> dict[str, Path]:
    """Where each medium is on this machine."""
    there = {"memory": MEMORY, "disk": Path(tempfile.gettempdir())}
    return {name: there[name] for name in media.split(",") if there[name].is_dir()}


def server_for(stack: ExitStack, chosen: list[System], folder: Path) -> str:
    """Where the API of a Prefect server is, if one is needed."""
    if not any(system.needs_server for system in chosen):
        return ""
    return stack.enter_context(prefect_server(folder / "server", os.environ)).url


def measure(options: argparse.Namespace, chosen: list[System]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Figures by medium and system, and what a kill left."""
    figures: dict[str, Any] = {}
    kills: dict[str, Any] = {}
    for medium, place in folders(options.media).items():
        folder = Path(tempfile.mkdtemp(prefix="mutoscope-chain-", dir=place))
        try:
            with ExitStack() as stack:
                bench = Bench(chosen, folder, server_for(stack, chosen, folder), options.steps)
                figures[medium] = bench.measure(options.rounds)
                kills = kills or {system.name: bench.survival(system) for system in chosen}
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return figures, kills


def verdicts(medians: Mapping[str, Mapping[str, float]], kills: Mapping[str, Any]) -> dict[str, Any]:
    """Ours against the fastest neighbour that is eligible, by medium."""
    eligible = [s.name for s in SYSTEMS if s.name not in OURS and s.lineage and s.name in kills]
    eligible = [name for name in eligible if kills[name]["survives"]]
    found = {}
    for medium, by_system in medians.items():
        if not eligible:
            continue
        fastest = min(eligible, key=lambda name: by_system[name])
        bar = by_system[fastest]
        found[medium] = {
            "bar_ms": round(bar, 3),
            "set_by": fastest,
            **{name: round(by_system[name] / bar, 3) for name in OURS if name in by_system},
        }
    return found


def report(
    options: argparse.Namespace, load: float, figures: Mapping[str, Any], kills: Mapping[str, Any]
) -> dict[str, Any]:
    """The record that is kept."""
    medians = {
        medium: {name: statistics.median(found["cold"]) for name, found in by_system.items()}
        for medium, by_system in figures.items()
    }
    again = {
        medium: {n: statistics.median(found["again"]) for n, found in by_system.items() if found["again"]}
        for medium, by_system in figures.items()
    }
    return {
        "benchmark": "chain",
        **environment.describe(),
        "busy_cores_of_others": round(load, 2),
        "representative": not environment.is_busy(load),
        "config": {"steps": options.steps, "rounds": options.rounds, "artifact_bytes": link.SIZE},
        "systems": {
            system.name: {
                "version": system.version,
                "lineage": system.lineage,
                "power_cut": system.durability,
                "kill": kills.get(system.name),
            }
            for system in SYSTEMS
            if system.name in kills
        },
        "ratios_to_the_bar": verdicts(medians, kills),
        "cold_ms_a_step": rounded(medians),
        "again_ms_a_step": rounded(again),
        "samples": figures,
    }


def rounded(by_medium: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    return {m: {name: round(value, 3) for name, value in found.items()} for m, found in by_medium.items()}


def show(record: Mapping[str, Any]) -> None:
    """The figures, and what to make of them."""
    media = list(record["cold_ms_a_step"])
    print(
        f"{'ms a step':20}"
        + "".join(f"{m + ' cold':>13}{m + ' again':>14}" for m in media)
        + "  kill, lineage"
    )
    for name, facts in record["systems"].items():
        row = f"{name:20}"
        for medium in media:
            again = record["again_ms_a_step"][medium].get(name)
            row += f"{record['cold_ms_a_step'][medium][name]:13.2f}{again if again is not None else '-':>14}"
        kill = (
            "survives" if facts["kill"]["survives"] else f"computes {facts['kill']['computed_again']} again"
        )
        print(f"{row}  {kill}; {facts['lineage'] or 'no lineage'}")
    for medium, verdict in record["ratios_to_the_bar"].items():
        for name in (name for name in OURS if name in verdict):
            met = "met" if verdict[name] <= 1 else "MISSED"
            print(
                f"{medium}: {name} {verdict[name]:.2f} of {verdict['set_by']}'s {verdict['bar_ms']} ms: {met}"
            )
    if not record["representative"]:
        busy, cores = record["busy_cores_of_others"], record["machine"]["cores"]
        print(f"Not representative: others kept {busy:.1f} of {cores} cores busy. Repeat on an idle machine.")


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure a chain of steps in several systems.")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--media", default="memory,disk")
    parser.add_argument("--only", default="", help="names of systems, separated by commas")
    parser.add_argument("--output", type=Path, default=RESULT)
    options = parser.parse_args()
    missing = {name: why for name, why in systems.install().items() if why is not None}
    for name, why in missing.items():
        print(f"{name} is left out: {why}")
    wanted = set(options.only.split(",")) if options.only else {system.name for system in SYSTEMS}
    chosen = [s for s in SYSTEMS if s.name in wanted and s.package not in missing]
    load = environment.others_load()
    record = report(options, load, *measure(options, chosen))
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(record, indent=1) + "\n")
    show(record)


if __name__ == "__main__":
    main()
