"""Which workflows exist, and whether their declarations hold.

Workflow ids are dotted ("image_video.t2i_i2v") and share one namespace with card ids and with workflow names
("text_to_video"), so that whatever a person types means one thing. Importing a module that declares workflows
registers them. `discover` imports the modules that installed distributions name in the entry point group
``mutoscope.workflows``, and those of ``MUTOSCOPE_WORKFLOWS``, a comma-separated list for workflows that are
not packaged.

A declaration is refused at once if its id or name is malformed or taken, or if it closes a cycle. What it
requires may be declared by a module that is imported later, so that is asked when all have been: by
`discover`, by a deployment and by every execution.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from mutoscope.models.registry import cards
from mutoscope.platform.errors import InvalidWorkflow, UnknownWorkflow
from mutoscope.platform.orchestration import signature

if TYPE_CHECKING:
    from prefect import Flow

    from mutoscope.platform.orchestration.outputs import Outputs
    from mutoscope.platform.orchestration.schedule import Schedule

ENTRY_POINT_GROUP = "mutoscope.workflows"
VARIABLE = "MUTOSCOPE_WORKFLOWS"

_ID = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+")
_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True, slots=True, eq=False)
class Workflow:
    """A declared workflow.

    Attributes:
        id: dotted, for machines and lineage.
        name: one snake-case word, for people and for the Prefect UI.
        requires: ids of the cards and workflows it may run.
        entrypoint: "package.module.attribute" of the flow, from which a deployment loads it.
        parameters: model of its parameters.
        outputs: what it returns.
        flow: the Prefect flow.
        schedules: when it starts by itself, unless an operator says otherwise.
        most_running: how many of its runs may be under way at a time; more wait. None: as many as there are.
        time_limit: seconds that one execution may take; None: as long as it needs.
    """

    id: str
    name: str
    description: str
    requires: tuple[str, ...]
    entrypoint: str
    parameters: type[BaseModel]
    outputs: Outputs
    flow: Flow[..., Any]
    schedules: tuple[Schedule, ...] = ()
    most_running: int | None = None
    time_limit: float | None = None

    def validate(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Validated parameters, defaults filled in. Raises InvalidParameter."""
        return signature.validate(self.name, self.parameters, given)

    @property
    def references(self) -> dict[str, str]:
        """Parameters that take an artifact, and of which kind: those whose schema says `"artifact": kind`."""
        return signature.references(self.parameters)

    @property
    def artifact_parameters(self) -> dict[str, str]:
        """Parameters that the function gets as references, and of which kind."""
        return signature.artifact_parameters(self.parameters)

    def coerce(self, texts: Mapping[str, str]) -> dict[str, Any]:
        """Command-line texts as values; what cannot be read stays text, for `validate` to refuse."""
        return signature.coerce(self.parameters, texts)


@dataclass(slots=True)
class Registry:
    """Workflows by id.

    Attributes:
        card_ids: the other half of the namespace.
        complete: imports the modules that may declare further ones; called before something is missed.
    """

    card_ids: Callable[[], Iterable[str]] = cards
    complete: Callable[[], object] = field(default=lambda: None)
    _by_id: dict[str, Workflow] = field(default_factory=dict)

    def register(self, workflow: Workflow) -> None:
        """Add a workflow. A module that is imported again replaces its own.

        Raises:
            InvalidWorkflow: malformed or taken id or name, or a cycle among what is registered so far.
        """
        self._check_spelling(workflow)
        self._check_free(workflow)
        previous = self._by_id.get(workflow.id)
        self._by_id[workflow.id] = workflow
        try:
            self._check_cycle(workflow)
        except InvalidWorkflow:
            del self._by_id[workflow.id]
            if previous is not None:
                self._by_id[workflow.id] = previous
            raise

    def get(self, name: str) -> Workflow:
        """The workflow of that id or name. Raises UnknownWorkflow, which lists what there is."""
        found = self._find(name)
        if found is None:
            self.complete()
            found = self._find(name)
        if found is not None:
            return found
        known = ", ".join(sorted(workflow.name for workflow in self._by_id.values())) or "none is registered"
        raise UnknownWorkflow(f"workflow {name!r} is unknown: use one of {known}")

    def all(self) -> Mapping[str, Workflow]:
        """Every workflow by id."""
        return MappingProxyType(self._by_id)

    def id_of(self, flow: object) -> str:
        """The id of the workflow that a flow is. Raises InvalidWorkflow: it is none that is registered."""
        for workflow in self._by_id.values():
            if workflow.flow is flow:
                return workflow.id
        raise InvalidWorkflow(f"{flow!r} is no workflow of this registry: require it by its id")

    def check_all(self) -> None:
        """Raise InvalidWorkflow when any workflow requires what does not exist."""
        for workflow in list(self._by_id.values()):
            self.check_requirements(workflow)

    def check_requirements(self, workflow: Workflow) -> None:
        """Raise InvalidWorkflow when it requires, directly or not, what is neither card nor workflow."""
        if self._missing(workflow) is None:
            return
        self.complete()
        missing = self._missing(workflow)
        if missing is not None:
            owner, required = missing
            choices = ", ".join(sorted((*self.card_ids(), *self._by_id)))
            raise InvalidWorkflow(
                f"workflow {owner!r} requires {required!r}, which is no card or workflow: use {choices}"
            )

    def cards_of(self, workflow: Workflow) -> set[str]:
        """Ids of the cards that a workflow may run, itself or through others."""
        cards: set[str] = set()
        seen, pending = {workflow.id}, [workflow]
        while pending:
            for required in pending.pop().requires:
                if required not in self._by_id:
                    cards.add(required)
                elif required not in seen:
                    seen.add(required)
                    pending.append(self._by_id[required])
        return cards

    def _find(self, name: str) -> Workflow | None:
        return next((each for each in self._by_id.values() if name in (each.id, each.name)), None)

    def _missing(self, workflow: Workflow) -> tuple[str, str] | None:
        """A workflow, this one or one below, and what it requires in vain."""
        known, pending = set(self.card_ids()), [workflow]
        seen: set[str] = set()
        while pending:
            current = pending.pop()
            seen.add(current.id)
            for required in current.requires:
                if required in self._by_id:
                    pending += [self._by_id[required]] if required not in seen else []
                elif required not in known:
                    return current.id, required
        return None

    def _check_spelling(self, workflow: Workflow) -> None:
        if not _ID.fullmatch(workflow.id):
            raise InvalidWorkflow(
                f"workflow id {workflow.id!r} is malformed: use dotted snake case such as image.upscale"
            )
        if not _NAME.fullmatch(workflow.name):
            raise InvalidWorkflow(
                f"workflow name {workflow.name!r} is malformed: use snake case such as upscale"
            )

    def _check_free(self, workflow: Workflow) -> None:
        taken = sorted({workflow.id, workflow.name} & set(self.card_ids()))
        if taken:
            raise InvalidWorkflow(
                f"workflow {workflow.entrypoint} claims {taken[0]!r}, a card's id: choose another"
            )
        for other in self._by_id.values():
            if other.entrypoint == workflow.entrypoint:
                continue
            shared = sorted({workflow.id, workflow.name} & {other.id, other.name})
            if shared:
                raise InvalidWorkflow(
                    f"workflow {workflow.entrypoint} claims {shared[0]!r}, which {other.entrypoint} has: "
                    "choose another"
                )

    def _check_cycle(self, workflow: Workflow) -> None:
        path: list[str] = []

        def visit(current: Workflow) -> None:
            if current.id in path:
                cycle = " -> ".join((*path[path.index(current.id) :], current.id))
                raise InvalidWorkflow(
                    f"workflows require each other in a cycle, {cycle}: remove one requirement"
                )
            path.append(current.id)
            for required in current.requires:
                if required in self._by_id:
                    visit(self._by_id[required])
            path.pop()

        visit(workflow)


def import_modules() -> None:
    """Import every module that is named to hold workflows.

    Raises:
        InvalidWorkflow: one cannot be imported, or declares something that does not hold.
    """
    installed = sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda entry: entry.name)
    named = (module.strip() for module in os.environ.get(VARIABLE, "").split(","))
    for module in (*(entry.value for entry in installed), *filter(None, named)):
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            raise InvalidWorkflow(
                f"workflow module {module!r} cannot be imported ({error}): install it, or mend {VARIABLE}"
            ) from error


REGISTRY = Registry(complete=import_modules)
"""The process's workflows."""


def discover() -> Registry:
    """The process's registry, with every workflow there is, each of which has what it requires.

    Raises:
        InvalidWorkflow: a named module cannot be imported, or declares something that does not hold.
    """
    import_modules()
    REGISTRY.check_all()
    return REGISTRY
