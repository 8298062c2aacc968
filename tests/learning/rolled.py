"""The groups that an iteration learned from, read again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mutoscope.platform.orchestration.runtime import Runtime
from mutoscope.platform.training.groups import RolloutRecord


def groups(runtime: Runtime, record: Mapping[str, Any], stage: int = 0) -> list[RolloutRecord]:
    """Those of a stage, from what the training noted of the iteration; the last stage is -1."""
    told = list(record["rollouts"]["cards"].values())[stage]
    return [RolloutRecord.from_json(json.loads(runtime.store.get(digest))) for digest in told["records"]]
