"""One engine run as a Prefect task: the verb that workflows are written with.

    image = await engine_run("flux-t2i", prompt="a red circle", seed=7)
    video = await engine_run("wan-i2v", image=image["image"], prompt="a red circle", seed=7)

Inside a flow it is a task run, named after the card, that shows `Cached` when the memo served it, with a
progress artifact while it works and pictures when it is done. Outside any flow it is a plain await and needs
no server.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from prefect import Task
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import PrefectClient
from prefect.client.schemas import State
from prefect.context import FlowRunContext, TagsContext, TaskRunContext
from prefect.states import Completed, Failed

from mutoscope.platform.catalog import RunRecord
from mutoscope.platform.engine.request import Profile
from mutoscope.platform.errors import MutoscopeError
from mutoscope.platform.orchestration.context import WorkflowContext, current_workflow, observer
from mutoscope.platform.orchestration.labels import run_label, with_seed
from mutoscope.platform.orchestration.plan import Origin
from mutoscope.platform.orchestration.publish import ProgressFeed
from mutoscope.platform.orchestration.runtime import get_runtime
from mutoscope.platform.orchestration.selection import Weights
from mutoscope.platform.orchestration.submit import submit_run
from mutoscope.platform.refs import ArtifactRef


async def engine_run(
    card_id: str,
    *,
    seed: int | None = None,
    profile: Profile = Profile.SERVE,
    weights: Weights = (),
    priority: int | None = None,
    time_limit: float | None = None,
    **given: Any,
) -> dict[str, ArtifactRef]:
    """Run a card at its live weights and return its outputs by slot.

    Equal calls share one computation, now and later: the memo key covers the card's code, the weights, the
    inputs, the parameters, the seed and the numeric contract.

    Args:
        card_id: which card.
        seed: 0 <= seed < 2**63; drawn and recorded when None.
        weights: versions to use instead of the live ones, such as {"transformer": "@12"} or "@candidate";
            see `selection`.
        priority: higher is claimed first; None: that of the workflow, which a tag of its flow run says
            (``priority=5``).
        time_limit: seconds that one attempt may take on a worker, waiting not counted; None: what the
            settings say.
        given: the card's input slots (references or their text) and parameters; None means "not given".

    Raises:
        InvalidWorkflow: the executing workflow does not declare that it requires the card.
        InvalidInput: the card, an input or a parameter is wrong; see `plan_run`.
        NoWorker: nobody serves the card; the run stays queued.
        RunFailed, RunCancelled: how the run ended. TimeLimitExceeded: it took too long.
        CatalogUnavailable: the catalog did not answer for longer than it is waited for.
    """
    context = current_workflow.get()
    if context is not None:
        context.require(card_id)
    chosen = {"weights": weights or None, "priority": priority, "time_limit": time_limit}
    # What is not chosen is left out: the UI shows a task's parameters.
    request = {"seed": seed, **{name: value for name, value in chosen.items() if value is not None}, **given}
    if FlowRunContext.get() is None:
        return (await submit_run(card_id, profile=profile, **request)).outputs
    # Each tag of a task run costs a question about concurrency limits; the flow run's tags say enough.
    with TagsContext(current_tags=set()):
        state = await _task(card_id, request, profile)
    return dict(await state.aresult())


async def _engine_run(card_id: str, request: dict[str, Any], profile: Profile) -> State[Any]:
    """The task's body. It returns a state, to name memo hits and to keep failure messages to one line."""
    flow_context, task_context = FlowRunContext.get(), TaskRunContext.get()
    if flow_context is None or task_context is None or flow_context.flow_run is None:
        raise RuntimeError("engine_run's task was started outside a flow")
    context = current_workflow.get()
    origin = Origin(
        workflow_run_id=context.run_id if context else None,
        prefect_flow_run_id=str(flow_context.flow_run.id),
        prefect_task_run_id=str(task_context.task_run.id),
    )
    client = cast("PrefectClient", flow_context.client)  # an async flow has an async client
    try:
        with _telemetry(card_id, context, client):
            outcome = await submit_run(card_id, profile=profile, origin=origin, **request)
    except MutoscopeError as error:
        return Failed(message=str(error), data=error)
    # The event that tells of the task's end brings the name along.
    task_context.task_run.name = await run_label(get_runtime(), outcome.run)
    if context is not None:
        context.publications.spawn_outcome(get_runtime(), outcome, client)
    return Completed(name="Cached" if outcome.disposition == "hit" else "Completed", data=outcome.outputs)


def _task_name(parameters: dict[str, Any]) -> str:
    """Until it is known which versions it pins; see `labels`."""
    return with_seed(parameters["card_id"], parameters["request"].get("seed"))


_task = Task(
    _engine_run,
    name="engine_run",
    task_run_name=_task_name,  # type: ignore[arg-type]  # its protocol has a class method that no function has
    description="Run a card through the queue and wait for its outputs.",
    # The catalog is the memo; Prefect's cache knows nothing of weights or bytes.
    cache_policy=NO_CACHE,
    persist_result=False,
    retries=0,
)


@contextmanager
def _telemetry(card_id: str, context: WorkflowContext | None, client: PrefectClient) -> Iterator[None]:
    """While the block runs, show the run's progress in the UI, and to the observer around it.

    Without a workflow there is nobody to wait for background publications, so there are none.
    """
    if context is None:
        yield
        return
    around, publications = observer.get(), context.publications
    feed = ProgressFeed(card_id, client, publications.turn)
    started = False

    def observe(run: RunRecord) -> None:
        nonlocal started
        if around is not None:
            around(run)
        if not started and not run.finished:  # a memo hit has no progress to show
            publications.spawn(feed.publish())
            started = True
        feed.observe(run)

    token = observer.set(observe)
    try:
        yield
    finally:
        observer.reset(token)
        feed.close()
