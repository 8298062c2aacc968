"""Flows that keep the platform in order.

    reap   closes the records of workflow runs whose process died

The server starts them by itself; see the automations in `mutoscope.platform.orchestration.deployments`.
"""
