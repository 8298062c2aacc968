"""prefect.yaml: read as Prefect's own command reads it, and about workflows that exist."""

from __future__ import annotations

import yaml
from prefect.cli.deploy._models import PrefectYamlModel, RawScheduleConfig

from mutoscope.platform.orchestration.registry import discover
from mutoscope.platform.orchestration.stack import POOL
from mutoscope.platform.orchestration.workflow import TAG
from tests.infra.conftest import INFRA


def test_deployments_are_of_workflows_that_exist() -> None:
    text = yaml.safe_load((INFRA / "prefect.yaml").read_text())
    declared = PrefectYamlModel.model_validate(text)
    workflows = {workflow.entrypoint: workflow for workflow in discover().all().values()}
    assert len(declared.deployments) == 2
    for deployment in declared.deployments:
        workflow = workflows[str(deployment.entrypoint)]
        assert deployment.work_pool is not None
        assert deployment.work_pool.name == POOL
        assert TAG not in (deployment.tags or ()), "ours are removed when the code no longer has them"
        assert deployment.name != workflow.name, "that one is ours"
        assert set(deployment.parameters) <= set(workflow.flow.parameters.properties)
        assert all(isinstance(schedule, RawScheduleConfig) for schedule in deployment.schedules or ())
    assert any(deployment.schedules for deployment in declared.deployments)
