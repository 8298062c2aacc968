"""The chain in Metaflow: a flow of as many steps, artifacts in its local datastore, a process per step.

A step is a method, so the flow is written out for the number of steps and run as its documentation says,
`python flow.py run`; again means `resume`, which takes over the steps that ended.
"""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import link

HERE = Path(__file__).parent
FLOW = """
import sys
sys.path.insert(0, {here!r})
import link
from metaflow import FlowSpec, Parameter, step

class ChainFlow(FlowSpec):
    seed = Parameter("seed", type=int, default=0)

    @step
    def start(self):
        self.artifact = link.start(self.seed)
        self.next(self.link_0)
{steps}
    @step
    def end(self):
        pass

if __name__ == "__main__":
    ChainFlow()
"""
STEP = """
    @step
    def link_{position}(self):
        self.artifact = link.step(self.artifact, {position})
        self.next(self.{following})
"""
started: set[int] = set()


def written(steps: int) -> str:
    folder = Path(f"flow_{steps}")
    folder.mkdir(exist_ok=True)
    body = "".join(
        STEP.format(position=k, following=f"link_{k + 1}" if k + 1 < steps else "end") for k in range(steps)
    )
    path = folder / "chain_flow.py"
    path.write_text(FLOW.format(here=str(HERE), steps=body))
    return str(path)


def run(seed: int, steps: int) -> str:
    known = Path(f"started-{seed}-{steps}")
    command = ["resume"] if known.exists() else ["run", "--seed", str(seed)]
    known.touch()
    subprocess.run([sys.executable, written(steps), *command], check=True, stdout=subprocess.DEVNULL)
    from metaflow import Flow, namespace

    namespace(None)
    return hashlib.sha256(Flow("ChainFlow").latest_run[f"link_{steps - 1}"].task.data.artifact).hexdigest()


if __name__ == "__main__":
    os.environ.setdefault("USERNAME", "bench")
    link.serve(run)
