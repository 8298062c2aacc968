"""Every exception Mutoscope raises on purpose, as one small tree.

    MutoscopeError                     exit code 1
    ├── InvalidInput                   exit code 2: what the caller gave cannot be used
    │   ├── InvalidParameter           a field of a request: names field, value, remedy
    │   ├── UnhashableInput            a value that cannot be digested canonically
    │   ├── InvalidWorkflow            a declaration that cannot hold: id taken, requirement missing, cycle
    │   ├── UnknownWorkflow
    │   ├── UnknownCard
    │   ├── UnknownReference           no artifact, run or weight version by that name
    │   ├── AmbiguousReference         a prefix that matches several
    │   ├── InvalidFolder              a card folder that is damaged or incomplete
    │   ├── InvalidAdapter             an adapter in another naming, or one that does not fit its base
    │   ├── ArchiveInvalid             an archive that is damaged, incomplete or of another format
    │   ├── StoreUnwritable
    │   ├── StoreUnavailable           the artifact store does not answer, or refuses to be read
    │   │   └── StoreAway              it does not answer, to writers either: trying again may help
    │   ├── ServerUnavailable          no orchestration server answers
    │   │   └── AccessRefused          it answers, but not to these credentials
    │   └── NoWorker                   nobody serves the card; the run stays queued
    ├── ArtifactError
    │   ├── ArtifactMissing            catalogued, or asked for, but no bytes
    │   └── ArtifactCorrupt            bytes whose digest is not their name
    ├── CatalogError
    │   ├── CatalogUnavailable         the database does not answer, or gave way: trying again may help
    │   ├── SchemaMismatch             the database is at another revision than the code
    │   └── LeaseLost                  a worker reports on a run that is no longer its own
    ├── SyncFailed                     a weight sync was undone; the earlier weights go on serving
    ├── GroupLost                      a rank of a worker's group of devices is gone; the group ends
    └── RunError
        ├── RunFailed
        │   ├── TrainingHalted         a training that was stopped; its head is the last good version
        │   ├── TrainingDiverged       a training step whose policy went astray; it made no weights
        │   ├── ScoreTimeout           a reward card's time limit has passed
        │   ├── NonFinite              a step gave NaN or infinity
        │   └── TimeLimitExceeded      a run or a workflow took longer than it may
        └── RunCancelled
            └── WorkflowCancelled      a whole workflow run, by its id or by whoever waited for it
                └── Declined           a person was asked, and said no

A message is one line: what is wrong, the value, and what to do. `str(error)` is that line, and it survives
pickling and the trip through an orchestrator's state message unchanged.
"""

from __future__ import annotations

from typing import Any


class MutoscopeError(Exception):
    """Base of all errors raised on purpose. `exit_code` is what a command ends with."""

    exit_code = 1

    def __str__(self) -> str:
        return " ".join(str(self.args[0]).split()) if self.args else type(self).__name__


class InvalidInput(MutoscopeError):
    """The caller's input cannot be used; retrying without changing it is pointless."""

    exit_code = 2


class InvalidParameter(InvalidInput):
    """A single field is wrong.

    Args:
        field: name of the parameter as the caller wrote it.
        value: the value given (shown shortened).
        remedy: what would be accepted, as an imperative or a fact ("use an integer from 1 to 200").
    """

    def __init__(self, field: str, value: Any, remedy: str) -> None:
        super().__init__(field, value, remedy)
        self.field, self.value, self.remedy = field, value, remedy

    def __str__(self) -> str:
        shown = repr(self.value)
        if len(shown) > 80:
            shown = shown[:77] + "..."
        return " ".join(f"{self.field}={shown} is not valid: {self.remedy}".split())


class UnhashableInput(InvalidInput):
    """A value without a canonical encoding; refused rather than left out of a key."""


class InvalidWorkflow(InvalidInput):
    """A workflow declared in a way that cannot hold, or one that leaves its declaration while it runs."""


class UnknownWorkflow(InvalidInput):
    """No workflow is registered under that id."""


class UnknownCard(InvalidInput):
    """No card is registered under that id."""


class UnknownReference(InvalidInput):
    """Nothing in the catalog answers to that reference."""


class AmbiguousReference(InvalidInput):
    """A prefix that several artifacts share."""


class InvalidFolder(InvalidInput):
    """A card folder that is damaged, incomplete or of another model family."""


class InvalidAdapter(InvalidInput):
    """An adapter that cannot be put on its base: named in another way, or of other shapes."""


class ArchiveInvalid(InvalidInput):
    """An archive that is damaged, incomplete, of another format, or that holds what none of ours does."""


class StoreUnwritable(InvalidInput):
    """The artifact store refuses writes."""


class StoreUnavailable(InvalidInput):
    """The artifact store does not answer, or refuses to be read. Says nothing about what it holds."""


class StoreAway(StoreUnavailable, StoreUnwritable):
    """The artifact store did not answer for as long as it is waited for, whatever was asked of it."""


class ServerUnavailable(InvalidInput):
    """No orchestration server answers at the configured address."""


class AccessRefused(ServerUnavailable):
    """The orchestration server answers, and refuses what this process says it is."""


class NoWorker(InvalidInput):
    """No live worker serves the card. The run stays queued and will be taken when one starts."""


class ArtifactError(MutoscopeError):
    """Trouble with stored bytes."""


class ArtifactMissing(ArtifactError):
    """The object is not in the store."""


class ArtifactCorrupt(ArtifactError):
    """The object's bytes do not hash to its name."""


class CatalogError(MutoscopeError):
    """Trouble with the catalog."""


class CatalogUnavailable(CatalogError):
    """The catalog does not answer, or gave way to another change. Says nothing about what it holds."""


class SchemaMismatch(CatalogError):
    """Database and code are at different schema revisions."""


class LeaseLost(CatalogError):
    """The run's lease belongs to somebody else now; the late result is discarded."""


class SyncFailed(MutoscopeError):
    """A weight sync was undone. What was served before is served on, unless the message says otherwise."""


class GroupLost(MutoscopeError):
    """A rank of a worker's group of devices does not answer. Says nothing about the runs it was at."""


class RunError(MutoscopeError):
    """A run ended without outputs."""


class RunFailed(RunError):
    """The run failed; the message is the recorded error."""


class TrainingHalted(RunFailed):
    """A training was stopped, because what it taught got worse or a step of it failed."""


class TrainingDiverged(RunFailed):
    """A training step ended with no finite gradient, or with a policy far from where it began."""


class RunCancelled(RunError):
    """The run was cancelled."""


class WorkflowCancelled(RunCancelled):
    """The workflow run was cancelled, and what only it waited for with it."""


class Declined(WorkflowCancelled):
    """A person was asked whether the workflow may go on, and said no."""


class ScoreTimeout(RunFailed):
    """A scorer took longer than its request allows. Says nothing about the sample."""


class NonFinite(RunFailed):
    """A step gave NaN or infinity: nothing of it is kept."""


class TimeLimitExceeded(RunFailed):
    """A run, or a workflow, took longer than its time limit. Starting it again takes as long."""
