"""Flows that keep the platform in order.

    collect         collects artifacts that nothing keeps
    reap            closes the records of workflow runs whose process died
    verify          checks that every row has its bytes
    train_starter   trains the starter weights again, as a recorded run

The server starts `reap` by itself; see the automations in `mutoscope.platform.orchestration.deployments`.
"""
