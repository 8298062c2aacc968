"""The engine: cards declare, programs compose, loops drive, the engine executes.

`card`, `request` and `numerics` are plain declarations and import no torch, so that a flow host can validate
a request and compute its memo key without a GPU stack. `loop`, `program`, `instance`, `sampling` and `engine`
execute. The engine knows nothing of stores, catalogs or orchestrators: requests go in, arrays and records
come out.
"""
