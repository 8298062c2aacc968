"""A flow host needs no GPU stack: what importing the flows leaves unimported."""

from __future__ import annotations

import json
import subprocess
import sys

HEAVY = ("torch", "diffusers", "transformers", "accelerate", "safetensors.torch", "av")

PROBE = """
import json, sys
import mutoscope.flows.shipped
import mutoscope.platform.orchestration.deployments
import mutoscope.platform.orchestration.launch
from mutoscope.platform.orchestration.registry import discover
print(json.dumps({"modules": sorted(sys.modules), "workflows": sorted(discover().all())}))
"""


def test_flows_import_without_the_gpu_stack() -> None:
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert [name for name in HEAVY if name in found["modules"]] == []
    # The probe saw the flows themselves, and the entry point leads to them.
    assert "mutoscope.flows.generate.text_to_video" in found["modules"]
    assert "image_video.t2i_i2v" in found["workflows"]


ALONE = """
import sys
import mutoscope.flows.generate.text_to_video
others = ("mutoscope.flows.rl", "mutoscope.flows.maintenance")
print([name for name in sys.modules if name.startswith(others)])
"""


def test_a_workflow_imports_no_other_than_it_uses() -> None:
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
