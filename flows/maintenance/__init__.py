"""Flows that keep the platform in order.

    collect         collects artifacts that nothing keeps
    report          tells of a scheduled run that failed
    reap            closes the records of workflow runs whose process died
    verify          checks that every row has its bytes
    train_starter   trains the starter weights again, as a recorded run

The server starts `report` by itself; see `mutoscope.platform.orchestration.automations`.
"""
