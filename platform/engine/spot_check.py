"""A calibration from an earlier process, believed only after a look: one row, alone and in company.

Measuring takes hundreds of forward passes, asking whether a measurement still holds takes a few dozen. One
short request is walked, and of each of its calls a row goes through the smallest and the largest agreeing
size, among other rows and in another slot. A record of another machine, of other kernels or with a leaf
missing gives other bits there.
"""

from __future__ import annotations

import torch

from mutoscope.platform.engine import stable
from mutoscope.platform.engine.batching import Mode, Sizes, equal_bits, in_calls
from mutoscope.platform.engine.calibration import Agreement, Calibration, Pool, collect, example_of
from mutoscope.platform.engine.instance import Instance

SHORT = {"num_inference_steps": 1, "max_new_tokens": 2}
"""Parameters that make a request short without making its steps smaller."""


def holds(calibration: Calibration, instance: Instance) -> bool:
    """Whether the calibration describes the instance on this machine, as far as one look tells.

    False also where none of the calibrated calls turns up: nothing is known then. Leaf modules are treated as
    the calibration says; where it does not hold, a new one treats them on.
    """
    if calibration.mode is not Mode.BITWISE:
        return True
    named = {(each.kind, each.shape): each for each in calibration.agreements}
    stable.treat(instance.components.values(), calibration.leaves)
    with torch.inference_mode():
        pools = [pool for pool in collect(instance, example_of(instance, **SHORT)) if pool.name in named]
        with stable.padding():
            return bool(pools) and all(_agrees(pool, named[pool.name]) for pool in pools)


def _agrees(pool: Pool, agreement: Agreement) -> bool:
    """Whether the pool's last row has the same bits at the least size and at the end of the largest one."""
    row, sizes = pool.rows[-1], agreement.sizes
    (expected,) = in_calls(pool.call, [row], Sizes((sizes.least,)))
    others = [pool.rows[at % len(pool.rows)] for at in range(sizes.most - 1)]
    found = in_calls(pool.call, [*others, row], Sizes((sizes.most,)))
    return equal_bits(found[-1], expected)
