"""The engine: cards declare, programs compose, loops drive, the engine executes.

Declarations, without torch: a flow host validates a request and computes its memo key from them alone.

    card         a servable model, declared; request: what goes in and what comes out
    validation   what is refused before any work is done
    numerics     the numeric contract and the card digest, for memo keys
    rollout      what a rollout is asked for beyond serving
    example      an example request for any card; roles: what its inputs are called on record

What executes.

    loop         the contract of loops, programs, work plans and their rows
    instance     a card resident on a device; resident: which instance requests are served from now
    engine       requests in, results out; job: one request's walk; ticket: the caller's hold on it
    admission    who may begin; feasibility: who never could
    scheduler    who goes next, fairly; cost: in seconds; stepping: one step, with those that share its call
    execution    running plans, and taking a failed shared call apart
    ranks        processes that compute every step along
    memory       what is promised of the device's memory; footprint: what things take
    finite       NaN and infinity, named where they arise
    trace        what ran when, for people
    walk         a program from end to end without an engine; parity: what must not change a bit, checked

Shared calls that keep bits.

    batching     rows of many steps in one call; calibration: which sizes agree; proofs: calls that showed it
    stable       leaf modules that fill up; leaf_probe: which of them need to
    findings     what calibrations of several cards have in common
    spot_check   whether an earlier calibration still holds; calibration_record: one as plain data

Weights.

    views        a module with some tensors of its own; adapters: LoRA merged into such a view
    features     node results kept by content, per component version
    sync         new weights under live traffic; staging: checked and hashed first, proven on arrival
    held         which weights a module holds after they were replaced in place

Sampling.

    sampling     the flow-matching schedule, the ODE step, guidance
    sde          the laws of stochastic steps; capture: what a rollout records; recompute: C2

The engine knows nothing of stores, catalogs or orchestrators: requests go in, arrays and records come out.
"""
