"""The GPU worker: a long-lived process that claims runs, keeps cards resident and records what it made.

    __main__      the command line: `python -m mutoscope.workers`
    worker        the main loop: prepare, claim, step, deliver
    service       which cards are served now, and the weights held ready for them
    selection     weights that an operator names
    assignments   the runs at work, from claim to report; reports: told again while nobody listens
    executor      a run's two ends: stored inputs to a request, outputs to stored artifacts and rows
    residency     loaded instances by pinned weights, least recently used out
    parts         loaded components, shared by instances; adapters over their base
    rehearsal     a short request on fresh weights, which shows what such requests take
    measurements  what was measured of a card on this machine, kept for the next start
    updates       stored weights as an update for a weight sync
    weight_cache  pinned weights as folders on the local disk; cache_room: and what makes way there
    tensors       pinned weights as torch tensors, one at a time
    heartbeat     a thread that renews leases and hears what was cancelled, lost or asked for meanwhile
    progress      throttled step reports
    lookout       when to look at the queue
    shutdown      SIGTERM once to drain, twice to stop
    calibrations  which row counts of a card keep their bits, measured once it is loaded
    group         several processes on a device each, as one worker
    lead          rank 0's commands to the others; follower: who carries them out
    spread        rows of a call divided among ranks
    device        which device, and the numeric contract it promises

The engine is driven by one thread, so nothing in it needs a lock. The worker imports no orchestrator: it
talks to the catalog, the store and the engine alone. What it cannot report (a catalog that is away, a kill)
needs no report: the lease runs out and the run is taken again.
"""
