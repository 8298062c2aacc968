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
the text grows with the graph and not with its paths, and a cycle ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mutoscope.platform.catalog.graph import ArtifactNode, Edge, LineageGraph
from mutoscope.platform.catalog.records import RunRecord


@dataclass(frozen=True, slots=True)
class _Item:
    """A line to come: what stands before it, its own branch, the role that led here, and the node."""

    lead: str
    branch: str
    label: str
    node: str


def render_tree(graph: LineageGraph, root: str | None = None) -> str:
    """The graph as an indented tree, one node a line, without a final newline.

    Args:
        root: digest to start from; the graph's own root by default.
    """
    onward = _onward(graph)
    lines: list[str] = []
    drawn: set[str] = set()
    # A stack of our own: a training lineage is thousands of runs deep, beyond Python's recursion limit.
    stack = [_Item("", "", "", root or graph.root)]
    while stack:
        item = stack.pop()
        repeated = item.node in drawn and bool(onward.get(item.node))
        text = f"{item.lead}{item.branch}{item.label}{_describe(graph, item.node)}"
        lines.append(f"{text}  (see above)" if repeated else text)
        if repeated:
            continue
        drawn.add(item.node)
        stack.extend(reversed(list(_children(item, onward.get(item.node, ())))))
    return "\n".join(lines)


def _children(item: _Item, edges: Sequence[Edge]) -> Iterator[_Item]:
    # The root stands at the margin; what hangs from any other node is indented below its text.
    lead = item.lead + {"": "", "├─ ": "│  ", "└─ ": "   "}[item.branch]
    for position, edge in enumerate(edges, 1):
        branch = "└─ " if position == len(edges) else "├─ "
        to_run = item.node == edge.digest
        yield _Item(lead, branch, "" if to_run else f"{edge.role}: ", edge.run_id if to_run else edge.digest)


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


def _story_first(edge: Edge) -> tuple[bool, str, int]:
    """Slots, then the material: ``weights:…`` and other prefixed roles."""
    return ":" in edge.role, edge.role, edge.ordinal


def _describe(graph: LineageGraph, node: str) -> str:
    if node in graph.runs:
        return _describe_run(graph.runs[node])
    return _describe_artifact(graph.artifacts[node])


def _describe_run(run: RunRecord) -> str:
    seed = f"  seed={run.seed}" if run.seed is not None else ""
    state = "" if run.state == "succeeded" else f"  {run.state}"
    return f"{run}{seed}{state}"


def _describe_artifact(artifact: ArtifactNode) -> str:
    names = " = ".join(str(version) for version in artifact.versions)
    gone = "" if artifact.present else "  (bytes collected)"
    return f"{names}  {artifact.ref}{gone}" if names else f"{artifact.ref}{gone}"
