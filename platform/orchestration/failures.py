"""A flow run that failed, in words, and to whom they are sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import httpx
from prefect.exceptions import ObjectNotFound

from mutoscope.platform.errors import UnknownReference
from mutoscope.platform.orchestration.server import prefect_client

_PATIENCE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Failure:
    """What is said about a flow run; `str()` is one line."""

    flow_run: str
    name: str
    workflow: str
    state: str
    message: str

    @property
    def details(self) -> Mapping[str, Any]:
        """As an incident keeps it."""
        return {
            "flow_run": self.flow_run,
            "name": self.name,
            "workflow": self.workflow,
            "state": self.state,
            "message": self.message,
        }

    def __str__(self) -> str:
        return f"a scheduled run of {self.workflow} ended as {self.state}: {self.message} ({self.flow_run})"


async def failure_of(flow_run_id: str) -> Failure:
    """How a flow run ended. Raises UnknownReference or ServerUnavailable."""
    async with prefect_client() as client:
        try:
            flow_run = await client.read_flow_run(UUID(flow_run_id))
        except ObjectNotFound:
            raise UnknownReference(f"the Prefect server knows no flow run {flow_run_id}") from None
        flow = await client.read_flow(flow_run.flow_id)
    state = flow_run.state
    message = " ".join((state.message or "").split()) if state else ""
    return Failure(
        flow_run_id,
        flow_run.name,
        flow.name,
        state.name or "?" if state else "?",
        message or "no reason given",
    )


async def tell(url: str, failure: Failure) -> None:
    """Post a failure as JSON; `text` is what chat services show. Raises HTTPError when it is not taken."""
    async with httpx.AsyncClient(timeout=_PATIENCE_SECONDS) as client:
        answer = await client.post(url, json={"text": f"Mutoscope: {failure}", **failure.details})
        answer.raise_for_status()
