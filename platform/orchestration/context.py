"""Which workflow is executing here. Context variables keep concurrent workflows in one event loop apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mutoscope.platform import ids
from mutoscope.platform.errors import InvalidWorkflow
from mutoscope.platform.orchestration.kinds import plain

if TYPE_CHECKING:
    from mutoscope.platform.catalog import RunRecord
    from mutoscope.platform.orchestration.liveness import Hold
    from mutoscope.platform.orchestration.publish import Publications
    from mutoscope.platform.orchestration.registry import Registry
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
        registry: where it finds the workflows that it names by id.
        hold: its lease, and how it is stopped.
        origin: what its random draws come from: the same whenever it is started again.
        pins: digests of the weights it was started with, by card and component; the others are live.
        priority: of its runs that do not say their own.
        restartable: whether the outermost workflow was launched by something that can launch it again.
    """

    run_id: str
    chain: tuple[str, ...]
    allowed: frozenset[str]
    page: str
    publications: Publications
    registry: Registry
    hold: Hold
    origin: str
    pins: Pins = field(default_factory=dict)
    priority: int = 0
    restartable: bool = False
    _drawn: Counter[str] = field(default_factory=Counter)

    @property
    def workflow(self) -> str:
        return self.chain[-1]

    def require(self, used: str) -> None:
        """Raise InvalidWorkflow unless the workflow declared that it uses that card or workflow."""
        if used not in self.allowed:
            raise InvalidWorkflow(
                f"workflow {self.workflow!r} runs {used!r} without declaring it: add it to its `requires`"
            )

    def draw_seed(self, called: str, given: Mapping[str, Any]) -> int:
        """A seed for a card or workflow that is called without one, 0 <= seed < 2**32."""
        return int(self.draw(called, given)[:8], 16)

    def draw(self, called: str, given: Mapping[str, Any]) -> str:
        """A digest of the workflow's origin and of a call, different for each of several equal calls.

        An attempt that starts again draws the same, in whatever order its calls come, and so finds in the
        memo what was made before.
        """
        call = ids.digest("mutoscope.drawn-call/1", [called, plain(dict(given))])
        self._drawn[call] += 1
        return ids.digest("mutoscope.drawn/1", [self.origin, call, self._drawn[call]])

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
told: ContextVar[Callable[[str], None] | None] = ContextVar("told", default=None)
"""Called with a line that whoever waits should read meanwhile."""
