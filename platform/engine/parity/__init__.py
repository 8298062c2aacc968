"""Parity: what interleaving, batching and capture must not change, checked on any card.

    report.py    what was found, one line a gate
    content.py   a result as bytes
    serving.py   requests served one by one, interleaved and batched
    gates.py     the gates
    plants.py    defects to plant, so that every gate is seen to fail
    check.py     all of it, on one instance

Tests, `mutoscope doctor --card` and `mutoscope card check` run the same gates.
"""
