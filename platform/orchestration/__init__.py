"""The Prefect seam: workflows as flows, engine runs as tasks, deployments.

    workflow       the `@workflow` decorator: an async function becomes a recorded Prefect flow
    registry       which workflows exist, and the checks on their declarations
    signature      a workflow's parameters: one pydantic model from its signature
    kinds          artifact kinds as annotations
    outputs        what a workflow returns, by its annotation; output: one of them; values: JSON data, kept
    stage          a card or a workflow by its id
    fan_out        many stages at once, within bounds
    engine_run     one engine run as a Prefect task (or as a plain await outside any flow)
    submit         the same without Prefect: plan, enqueue or attach, wait
    waiting        waiting for a run in an event loop
    plan           what a run is: pinned weights, resolved parameters, memo key
    scoring        a reward for a sample, whatever happens to the run
    replay         an artifact made again from its record
    context        which workflow is executing here
    runtime        the process's handles: settings, catalog, store
    approval       a person's word between two stages
    labels         what runs are called in lists; pictures: how artifacts are shown there
    results        what a workflow run shows in the UI when it has ended
    publish        telemetry for the Prefect UI, off the critical path
    pages          browse pages of ended runs, off the critical path
    media          files from outside, as recorded imports
    importing      card folders, as recorded imports
    adapting       LoRA files, as recorded imports over a base
    selection      which weight versions a run pins where not the live ones
    weights        what a training made, as weight versions
    deployments    workflows on a work pool
    automations    what the server does by itself; failures: a flow run that failed, in words
    schedule       when a workflow starts by itself, as it is declared
    schedules      the schedules of deployed workflows, at the server
    launch         starting a workflow by name, here or on the pool
    execution      one execution of a workflow, from its row to that row's end
    liveness       who executes a workflow run: leases, and the word to stop
    patience       riding out a catalog that does not answer
    launch_tags    what a flow run is told by its tags
    cancelling     stopping a workflow from anywhere, and starting one again
    reconciler     the service that mends what dead processes left; reconciling: one look of it
    flow_processes which flow runs have a process on this machine
    flow_states    Prefect's view of flow runs, read and put right
    server         the Prefect server, or one line that says that nobody answers
    pool           the process pool in which submitted workflows run
    stack          the record of a running stack

Only references pass through Prefect; its rows are telemetry, the catalog is the truth.
"""
