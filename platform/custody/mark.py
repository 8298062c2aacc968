"""The mark: which artifacts nothing keeps. Reads only, page by page, however large the catalog is."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mutoscope.platform.catalog import Catalog
from mutoscope.platform.catalog.given import references_in
from mutoscope.platform.catalog.retention import Policy
from mutoscope.platform.custody.candidates import Candidates
from mutoscope.platform.errors import InvalidInput

Report = Callable[[str, int, int], None]
"""Told of progress: what is being done, how much of it is done, of so much (0: nobody knows)."""

PAGE = 5_000
"""Artifacts per query."""

_MOST_WORKFLOWS = 100_000


def silent(what: str, done: int, total: int) -> None:
    """A `Report` for whoever wants none."""


def policy_of(catalog: Catalog) -> Policy:
    """The rules as they stand, counted back from now."""
    return Policy(tuple(catalog.retention.list()), catalog.reachability.now())


def mark(catalog: Catalog, policy: Policy, report: Report = silent) -> Candidates:
    """Every artifact that may go by the policy. The caller closes the result."""
    found = Candidates()
    try:
        _suspect(catalog, policy, found, report)
        for digests in catalog.reachability.inputs_of_pins():
            found.keep(digests)
        found.keep(_given_to_workflows(catalog))
        found.resolve()
        for part in found.digests(PAGE):
            found.price(catalog.reachability.recipes(part))
    except BaseException:
        found.close()
        raise
    return found


def _suspect(catalog: Catalog, policy: Policy, found: Candidates, report: Report) -> None:
    total = catalog.reachability.count_present() if policy.rules else 0
    after: str | None = ""
    done = 0
    while after is not None:
        page = catalog.reachability.scan(policy, after, PAGE)
        found.suspect(page.suspects)
        if page.suspects:
            found.hold(catalog.reachability.containers([suspect.digest for suspect in page.suspects]))
        done += page.looked_at
        report("mark", done, total)
        after = page.last


def _given_to_workflows(catalog: Catalog) -> Iterator[str]:
    """What workflows under way were given: they may not have come to use it yet. Parameters are recorded as
    text."""
    for row in catalog.workflows.list(state="running", limit=_MOST_WORKFLOWS):
        for reference in references_in(row.parameters):
            try:
                yield catalog.artifacts.resolve(reference).digest
            except InvalidInput:
                continue  # text that looks like a reference and is none, or no longer a complete one
