"""A collection, or the plan of one, as Markdown: for pages and UIs that show it."""

from __future__ import annotations

from collections.abc import Sequence

from mutoscope.platform.catalog.collections import CollectionRecord
from mutoscope.platform.custody.plan import Plan
from mutoscope.platform.durations import spell_duration
from mutoscope.platform.wording import byte_size


def collection_summary(done: CollectionRecord) -> str:
    """What a collection came to."""
    counts = done.counts
    rows = [
        ("moved to the trash", counts["collected"], byte_size(counts["collected_bytes"])),
        ("without a record, moved to the trash", counts["orphans"], byte_size(counts["orphans_bytes"])),
        ("removed for good", counts["removed"], byte_size(counts["removed_bytes"])),
        ("put back", counts["restored"], ""),
        ("unfinished writes removed", counts["leftovers"], ""),
    ]
    elapsed = (done.finished_at or done.started_at) - done.started_at
    grace = spell_duration(done.grace_seconds)
    return (
        f"### Collection\n\n{_table(('', 'count', 'size'), rows)}\n\n"
        f"Took {spell_duration(round(elapsed, 1))}; what is in the trash can be brought back for {grace}: "
        "`mutoscope trash list`."
    )


def plan_summary(looked: Plan) -> str:
    """What a collection would do."""
    kinds = [(kind.kind, kind.count, byte_size(kind.size), kind.replayable) for kind in looked.kinds]
    parts = [
        f"### What would go: {looked.total.count:,}, {byte_size(looked.total.size)}",
        _table(("kind", "count", "size", "can be made again"), kinds),
        f"Without a record: {looked.orphans.count:,}, {byte_size(looked.orphans.size)}. "
        f"In the trash already: {looked.trash.count:,}, {byte_size(looked.trash.size)}.",
    ]
    parts += [f"The store is also used by {user}: a collection would refuse." for user in looked.strangers]
    return "\n\n".join(parts)


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(_cell(cell) for cell in line)} |" for line in lines)


def _cell(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
