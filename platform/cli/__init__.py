"""What people type: the `mutoscope` command.

    main.py         the app, and how errors end a command
    render.py       how results look: tables, trees, JSON, sizes and ages; progress.py: how far a command is
    home.py         the opened home: settings, catalog, store, running stack
    values.py       key=value arguments against a workflow's parameter types
    stack.py        up, down, status, prepare; ready.py: ready, for probes
    boot.py         what `up` does from start to stop; detach.py does it in a session of its own
    roles.py        what a host of several does, and where it finds the servers of the others
    api.py          asking the Prefect API and health addresses, without Prefect
    services.py     the processes a stack consists of, and when each is ready
    supervisor.py   starting, watching, restarting and draining them
    starter.py      bringing a home to a usable state: schema, store, starter weights
    run.py          run; follow.py shows a workflow's progress from the catalog
    cancel.py       cancel, retry
    schedule.py     schedule add, ls, pause, resume, rm
    approve.py      approve
    browse.py       ls, show, get, open
    lineage.py      lineage up, down, export
    diff.py         diff
    impact.py       impact
    audit.py        audit
    pages.py        pages url, rebuild, presign
    archive.py      export, import
    replay.py       replay
    cards.py        cards; card.py: card check
    weights.py      weights list, show, import, made, of; contents.py lists their files and tensors
    rl.py           rl ls, show, curves, compare
    pool.py         pool status, pause, resume, limit, load, unload, drain, hint
    catalog.py      catalog status, upgrade, check
    fsck.py         fsck
    gc.py           gc
    pins.py         pin, unpin, pins
    retention.py    retention add, list, remove
    trash.py        trash list, restore, empty
    incidents.py    incidents list, show
    why.py          why
    doctor.py       doctor; integrity.py tells whether stored weights are whole, parity.py asks a card's gates
    demo.py         demo

Command modules import only Typer at the top: `mutoscope --help` must answer at once, so everything heavier is
imported by the command that needs it. Nothing here imports torch or Prefect; Prefect arrives through
`platform/orchestration`.
"""
