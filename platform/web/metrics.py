"""The pool as Prometheus reads it.

Every number is asked of the catalog when it is scraped, so any gateway tells the same, and one that was
restarted has lost nothing. All are gauges: rates are taken over the last minute by the catalog, because
totals would mean counting a history that never ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from mutoscope.platform.catalog import Catalog
from mutoscope.platform.catalog.pool_report import CardLine, Depth, PoolReport, card_lines
from mutoscope.platform.catalog.workers import STATES

PER_CARD: dict[str, tuple[str, str]] = {
    "queued": ("mutoscope_queue_depth", "Runs that wait for a worker."),
    "oldest_seconds": ("mutoscope_queue_oldest_seconds", "How long the oldest of them has waited."),
    "running": ("mutoscope_runs_running", "Runs on a worker."),
    "per_minute": ("mutoscope_runs_succeeded_per_minute", "Runs that succeeded in the last minute."),
    "failed": ("mutoscope_runs_failed_per_minute", "Runs that failed in the last minute."),
    "seconds": ("mutoscope_run_seconds", "Mean time of a run on its worker, of those in the last minute."),
    "serving": ("mutoscope_workers_serving", "Live workers that take the card's runs."),
    "wanted": ("mutoscope_workers_wanted", "Workers that the card's queue calls for."),
    "paused": ("mutoscope_queue_paused", "1 while the card's runs are held back."),
    "most_running": ("mutoscope_runs_limit", "Most runs of the card at a time."),
}
"""Fields of a card's line, and the metric that tells each."""


class PoolCollector(Collector):
    """Asks the catalog at every scrape.

    Args:
        cards: told of even if nobody serves them or asks for them: a scaler that finds no number for a card
            leaves its workers as they are, and would never scale down.
    """

    def __init__(self, catalog: Catalog, cards: Iterable[str] = ()) -> None:
        self._catalog, self._cards = catalog, frozenset(cards)

    def collect(self) -> Iterator[Metric]:
        report = self._catalog.pool.report()
        idle = self._cards.difference(line.card for line in report.cards)
        report = replace(report, cards=(*report.cards, *map(_idle, sorted(idle))))
        for field, (name, what) in PER_CARD.items():
            yield _per_card(name, what, field, report)
        workers = GaugeMetricFamily("mutoscope_workers", "Live workers.", labels=["state"])
        states = Counter(worker.state for worker in report.workers)
        # A state that nobody is in is 0, not absent: an alert on it must not go silent.
        for state in sorted({*STATES, *states}):
            workers.add_metric([state], states[state])
        yield workers
        incidents = GaugeMetricFamily("mutoscope_incidents", "Incidents on record.", labels=["kind"])
        for kind, count in report.incidents.items():
            incidents.add_metric([kind], count)
        yield incidents


def exposition(catalog: Catalog, accept: str, cards: Iterable[str] = ()) -> tuple[bytes, str]:
    """The metrics in the format that an Accept header asks for, and its content type."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(PoolCollector(catalog, cards))
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


def _idle(card: str) -> CardLine:
    """The line of a card that nobody serves and nobody asks for."""
    (line,) = card_lines({card: Depth(0, 0, None)}, {}, (), ())
    return line


def _per_card(name: str, what: str, field: str, report: PoolReport) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, what, labels=["card"])
    for line in report.cards:
        value = _value(line, field)
        if value is not None:
            family.add_metric([line.card], value)
    return family


def _value(line: CardLine, field: str) -> float | None:
    """None where there is nothing to tell. A queue in which nothing waits has waited for 0 seconds."""
    value = getattr(line, field)
    if value is None:
        return 0.0 if field == "oldest_seconds" else None
    return float(value)
