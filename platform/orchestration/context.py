"""Which workflow is executing here. Context variables keep concurrent workflows in one event loop apart."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mutoscope.platform.errors import InvalidWorkflow

if TYPE_CHECKING:
    from mutoscope.platform.catalog import RunRecord
    from mutoscope.platform.orchestration.publish import Publications
    from mutoscope.platform.orchestration.selection import Pins

Observer = Callable[["RunRecord"], None]
"""Called with a run's record whenever the waiter sees it changed; must return at once."""


@dataclass(frozen=True, slots=True)
class WorkflowContext:
    """One executing workflow.

    Attributes:
        run_id: its row in the catalog.
        chain: workflow ids from the outermost to this one; what the recursion guard reads.
        allowed: ids of the cards and workflows it declared to require.
        page: path of its browse page in the store.
        publications: telemetry on its way to the UI; drained when the workflow ends.
        pins: digests of the weights it was started with, by card and component; the others are live.
        waiting: id of the run behind each wait now under way; what cancellation cascades to.
    """

    run_id: str
    chain: tuple[str, ...]
    allowed: frozenset[str]
    page: str
    publications: Publications
    pins: Pins = field(default_factory=dict)
    waiting: list[str] = field(default_factory=list)

    @property
    def workflow(self) -> str:
        return self.chain[-1]

    def require(self, used: str) -> None:
        """Raise InvalidWorkflow unless the workflow declared that it uses that card or workflow."""
        if used not in self.allowed:
            raise InvalidWorkflow(
                f"workflow {self.workflow!r} runs {used!r} without declaring it: add it to its `requires`"
            )

    def enter(self, workflow_id: str) -> None:
        """Raise InvalidWorkflow unless that workflow may run inside this one."""
        if workflow_id in self.chain:
            chain = " -> ".join((*self.chain, workflow_id))
            raise InvalidWorkflow(
                f"workflow {workflow_id!r} is already running here, {chain}: break the cycle"
            )
        self.require(workflow_id)


current_workflow: ContextVar[WorkflowContext | None] = ContextVar("current_workflow", default=None)
observer: ContextVar[Observer | None] = ContextVar("observer", default=None)
opened: ContextVar[Callable[[str], None] | None] = ContextVar("opened", default=None)
"""Called with the id of an outermost workflow's row once it is open."""
