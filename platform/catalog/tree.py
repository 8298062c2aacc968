"""A lineage graph as text.

    video:3fa9c1d2e4f5
    └─ wan-i2v run 0192c7f0-a1b2-7c3d-8e4f-5a6b7c8d9e0f  seed=7
       ├─ image: image:77b0d2c4e6a8
       │  └─ flux-t2i run 0192c7f0-9e3d-7a1b-9c2d-3e4f5a6b7c8d  seed=7
       │     └─ weights:transformer: flux-t2i/transformer@1  weights:a0b1c2d3e4f5
       │        └─ flux-t2i import 0192c7f0-5a11-7f0e-8d1c-2b3a4f5e6d7c
       └─ weights:vae: wan-i2v/vae@1  weights:0f1e2d3c4b5a
          └─ wan-i2v import 0192c7f0-5c40-7e9d-8b7a-6c5d4e3f2a1b

A node that several paths share is drawn in full where it comes first and named "(see above)" after that, so
the text grows with the graph and not with its paths, and a cycle ends. Asked to be brief, it folds siblings
of one sort ("… 99,990 more flux-t2i runs: 99,990 images") and stops at so many lines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mutoscope.platform.catalog.graph import ArtifactNode, Edge, LineageGraph
from mutoscope.platform.catalog.records import RunRecord
from mutoscope.platform.reward import told
from mutoscope.platform.wording import byte_size, several

SIBLINGS = 8
"""Siblings of one sort that a brief tree draws before it folds the rest."""


@dataclass(frozen=True, slots=True)
class _Item:
    """A line to come: what stands before it, its own branch, the role that led here, and the node. Or a fold:
    no node, and its text as label."""

    lead: str
    branch: str
    label: str
    node: str | None


@dataclass(frozen=True, slots=True)
class _Fold:
    """Siblings that one line stands for."""

    nodes: tuple[str, ...]
    text: str


def render_tree(graph: LineageGraph, root: str | None = None, *, limit: int | None = None) -> str:
    """The graph as an indented tree, one node a line, without a final newline.

    Args:
        root: digest to start from; the graph's own root by default.
        limit: be brief: fold siblings, and draw so many lines at most (the root and one more at least), the
            last of which says how much of the graph is not there.
    """
    onward = _onward(graph)
    lines: list[str] = []
    drawn: set[str] = set()
    folded: set[str] = set()
    # A stack of our own: a training lineage is thousands of runs deep, beyond Python's recursion limit.
    stack = [_Item("", "", "", root or graph.root)]
    while stack:
        item = stack.pop()
        if limit is not None and len(lines) == max(limit, 2) - 1 and (stack or onward.get(item.node or "")):
            left = len(graph.artifacts) + len(graph.runs) - len(drawn | folded)
            lines.append(f"… and {max(left, 1):,} more")
            break
        text = f"{item.lead}{item.branch}{item.label}"
        if item.node is None:
            lines.append(text)
            continue
        repeated = item.node in drawn and bool(onward.get(item.node))
        text += _describe(graph, item.node)
        lines.append(f"{text}  (see above)" if repeated else text)
        if repeated:
            continue
        drawn.add(item.node)
        kept, folds = onward.get(item.node, []), list[_Fold]()
        if limit is not None:
            kept, folds = _fold(graph, onward, item.node, kept)
            folded.update(node for fold in folds for node in fold.nodes)
        stack.extend(reversed(list(_children(item, kept, folds))))
    return "\n".join(lines)


def _children(item: _Item, edges: Sequence[Edge], folds: Sequence[_Fold]) -> Iterator[_Item]:
    # The root stands at the margin; what hangs from any other node is indented below its text.
    lead = item.lead + {"": "", "├─ ": "│  ", "└─ ": "   "}[item.branch]
    last = len(edges) + len(folds)
    for position, edge in enumerate(edges, 1):
        branch = "└─ " if position == last else "├─ "
        to_run = item.node == edge.digest
        yield _Item(lead, branch, "" if to_run else f"{edge.role}: ", edge.run_id if to_run else edge.digest)
    for position, fold in enumerate(folds, len(edges) + 1):
        yield _Item(lead, "└─ " if position == last else "├─ ", fold.text, None)


def _fold(
    graph: LineageGraph, onward: dict[str, list[Edge]], node: str, edges: list[Edge]
) -> tuple[list[Edge], list[_Fold]]:
    """The first siblings of each sort, and a fold for the rest of each. A rest of one is drawn."""
    sorts: dict[str, list[Edge]] = {}
    for edge in edges:
        sorts.setdefault(_sort(graph, edge, to_run=node == edge.digest), []).append(edge)
    kept: list[Edge] = []
    folds: list[_Fold] = []
    for sort, alike in sorts.items():
        shown = SIBLINGS if len(alike) > SIBLINGS + 1 else len(alike)
        kept += alike[:shown]
        if rest := alike[shown:]:
            to_run = node == rest[0].digest
            nodes = tuple(edge.run_id if to_run else edge.digest for edge in rest)
            text = f"… {several(len(rest), sort).replace(' ', ' more ', 1)}"
            folds.append(_Fold(nodes, text + (_outcome(graph, onward, nodes) if to_run else "")))
    return kept, folds


def _sort(graph: LineageGraph, edge: Edge, *, to_run: bool) -> str:
    """What siblings that fold together are called in the singular."""
    if not to_run:
        kind = graph.artifacts[edge.digest].ref.kind
        stem, _ = numbered(edge.role)
        return kind if stem == kind else f"{stem} {kind}"
    run = graph.runs[edge.run_id]
    state = "" if run.state == "succeeded" else f"{run.state} "
    return f"{state}{run.card or run.kind} run" if run.kind == "engine" else f"{state}{run.kind} run"


def _outcome(graph: LineageGraph, onward: dict[str, list[Edge]], run_ids: Sequence[str]) -> str:
    """What folded runs made, when looking down."""
    if not graph.down:
        return ""
    kinds = Counter(graph.artifacts[edge.digest].ref.kind for run in run_ids for edge in onward.get(run, ()))
    return ": " + ", ".join(several(count, kind) for kind, count in kinds.items()) if kinds else ""


def _onward(graph: LineageGraph) -> dict[str, list[Edge]]:
    """The edges that lead on from each node, in the walk's direction and in the order they are drawn."""
    from_artifact = "used" if graph.down else "generated"
    runs_of: dict[str, dict[str, Edge]] = {}
    roles_of: dict[str, list[Edge]] = {}
    for edge in graph.edges:
        if edge.direction == from_artifact:
            # A run that used an artifact in two roles is still one run.
            runs_of.setdefault(edge.digest, {}).setdefault(edge.run_id, edge)
        else:
            roles_of.setdefault(edge.run_id, []).append(edge)
    oldest_first = {digest: [edges[run_id] for run_id in sorted(edges)] for digest, edges in runs_of.items()}
    return oldest_first | {run_id: sorted(edges, key=_story_first) for run_id, edges in roles_of.items()}


def _story_first(edge: Edge) -> tuple[bool, str, int, int]:
    """Slots, then the material: ``weights:…`` and other prefixed roles. ``reward.2`` before ``reward.10``."""
    return ":" in edge.role, *numbered(edge.role), edge.ordinal


def numbered(role: str) -> tuple[str, int]:
    """A role and its number: ``reward.10`` is (``reward``, 10), and a role without one has -1."""
    stem = role.rstrip("0123456789")
    number = role[len(stem) :]
    return (stem.rstrip("._-") or role, int(number)) if number else (role, -1)


def _describe(graph: LineageGraph, node: str) -> str:
    if node in graph.runs:
        return _describe_run(graph.runs[node])
    return _describe_artifact(graph.artifacts[node])


def _describe_run(run: RunRecord) -> str:
    # A scorer draws nothing: its seed is 0 and tells nothing.
    seed = f"  seed={run.seed}" if run.seed is not None and run.kind != "reward" else ""
    state = "" if run.state == "succeeded" else f"  {run.state}"
    return f"{run}{seed}{state}"


def _describe_artifact(artifact: ArtifactNode) -> str:
    names = " = ".join(str(version) for version in artifact.versions)
    gone = "" if artifact.present else "  (bytes collected)"
    parts = artifact.parts
    of = f"  {several(parts.count, 'part')}, {byte_size(parts.size)}" if parts else ""
    if artifact.ref.kind == "reward" and (said := told(artifact.ref.meta)):
        of += f"  {said}"
    return f"{names}  {artifact.ref}{of}{gone}" if names else f"{artifact.ref}{of}{gone}"
