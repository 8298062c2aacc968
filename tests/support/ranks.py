"""The ranks of a group of devices, each a worker process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from tests.support.servers import free_ports
from tests.support.workshop import WorkerProcess, Workshop


@contextmanager
def ranks(workshop: Workshop, *arguments: str, **environment: str) -> Iterator[list[WorkerProcess]]:
    """Two ranks of the test card, as `torchrun` starts them; `environment` is rank 1's alone."""
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_ports(1)[0]), "WORLD_SIZE": "2"}
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                workshop.worker(*arguments, RANK=str(rank), **common, **(environment if rank else {}))
            )
            for rank in range(2)
        ]
