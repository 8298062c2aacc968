"""An artifact's lineage as a tree: each artifact with the run that made it, each run with what it used.

The lineage is a graph: an artifact reached a second time is marked as shown already instead of being unfolded
again, so the tree is never larger than the graph.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mutoscope.platform.catalog import RunRecord
from mutoscope.platform.catalog.lineage import ArtifactNode, LineageGraph
from mutoscope.platform.catalog.records import WEIGHTS_ROLE

GENERATIONS = 12
"""Runs between an artifact and the farthest one that a page tells of."""

MAX_NODES = 400
"""Artifacts unfolded on one page; past them a link leads on."""


@dataclass(slots=True)
class ArtifactLeaf:
    """An artifact in the tree, the role it plays for the run above, and the runs that generated it."""

    node: ArtifactNode
    role: str
    makers: list[RunBranch] = field(default_factory=list)
    repeated: bool = False
    cut: bool = False

    @property
    def name(self) -> str:
        """What people call it: its weight version if it has one."""
        return str(self.node.versions[-1]) if self.node.versions else str(self.node.ref)


@dataclass(slots=True)
class RunBranch:
    """A run, what it used as inputs, and which weights."""

    run: RunRecord
    inputs: list[ArtifactLeaf] = field(default_factory=list)
    weights: list[ArtifactLeaf] = field(default_factory=list)


def build_tree(graph: LineageGraph) -> ArtifactLeaf:
    """The tree of an upward closure, from its root.

    Iterative, so a lineage of ten thousand generations is no deeper than any other.
    """
    makers: dict[str, list[str]] = {}
    used: dict[str, list[tuple[str, str]]] = {}
    for edge in graph.edges:
        if edge.direction == "generated":
            makers.setdefault(edge.digest, []).append(edge.run_id)
        else:
            used.setdefault(edge.run_id, []).append((edge.role, edge.digest))
    root = ArtifactLeaf(graph.artifacts[graph.root], "")
    seen: set[str] = set()
    pending = [root]
    while pending:
        leaf = pending.pop(0)
        digest = leaf.node.ref.digest
        if digest in seen:
            leaf.repeated = bool(makers.get(digest))
            continue
        if len(seen) >= MAX_NODES:
            leaf.cut = bool(makers.get(digest))
            continue
        seen.add(digest)
        # The oldest maker tells how the bytes first came about; later ones made the same bytes again.
        for run_id in sorted(makers.get(digest, ()))[:1]:
            branch = RunBranch(graph.runs[run_id])
            for role, source in sorted(used.get(run_id, ())):
                child = ArtifactLeaf(graph.artifacts[source], role.removeprefix(WEIGHTS_ROLE))
                (branch.weights if role.startswith(WEIGHTS_ROLE) else branch.inputs).append(child)
            leaf.makers.append(branch)
            pending += [*branch.inputs, *branch.weights]
    return root
