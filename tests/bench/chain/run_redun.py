"""The chain in redun: tasks over lazy expressions, call graph and values in its SQLite repository.

Started in the folder that holds the repository, as `redun run` is.
"""

import logging

import link
from redun import Scheduler, task
from redun.config import Config

redun_namespace = "chain"


@task()
def one_step(previous: bytes, position: int) -> bytes:
    return link.step(previous, position)


@task()
def chain(first: bytes, steps: int) -> bytes:
    artifact = first
    for position in range(steps):
        artifact = one_step(artifact, position)
    return artifact


logging.getLogger("redun").setLevel(logging.WARNING)
scheduler = Scheduler(config=Config({"backend": {"db_uri": "sqlite:///redun.db"}}))
scheduler.load()


def run(seed: int, steps: int) -> bytes:
    return scheduler.run(chain(link.start(seed), steps))


if __name__ == "__main__":
    link.serve(run)
