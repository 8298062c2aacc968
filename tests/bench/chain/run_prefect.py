"""The chain in plain Prefect: tasks with persisted results, reused where the inputs are equal, against a
server. Results are files in the folder of `PREFECT_LOCAL_STORAGE_PATH`."""

import asyncio

import link
from prefect import flow, task
from prefect.cache_policies import INPUTS


@task(persist_result=True, cache_policy=INPUTS)
async def one_step(previous: bytes, position: int) -> bytes:
    return link.step(previous, position)


@flow(name="chain")
async def chain(seed: int, steps: int) -> bytes:
    artifact = link.start(seed)
    for position in range(steps):
        artifact = await one_step(artifact, position)
    return artifact


def run(seed: int, steps: int) -> bytes:
    return asyncio.run(chain(seed, steps))


if __name__ == "__main__":
    link.serve(run)
