"""A collection, or the plan of one, as Markdown: for pages and UIs that show it."""

from __future__ import annotations

from mutoscope.platform.catalog.collections import CollectionRecord
from mutoscope.platform.custody.plan import Plan
from mutoscope.platform.durations import spell_duration
from mutoscope.platform.wording import byte_size, markdown_table


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
        f"### Collection\n\n{markdown_table(('', 'count', 'size'), rows)}\n\n"
        f"Took {spell_duration(round(elapsed, 1))}; what is in the trash can be brought back for {grace}: "
        "`mutoscope trash list`."
    )


def plan_summary(looked: Plan) -> str:
    """What a collection would do."""
    kinds = [(kind.kind, kind.count, byte_size(kind.size), kind.replayable) for kind in looked.kinds]
    parts = [
        f"### What would go: {looked.total.count:,}, {byte_size(looked.total.size)}",
        markdown_table(("kind", "count", "size", "can be made again"), kinds),
        f"Without a record: {looked.orphans.count:,}, {byte_size(looked.orphans.size)}. "
        f"In the trash already: {looked.trash.count:,}, {byte_size(looked.trash.size)}.",
    ]
    parts += [f"The store is also used by {user}: a collection would refuse." for user in looked.strangers]
    return "\n\n".join(parts)
