"""A near-empty card: real in every respect, over in microseconds, and able to misbehave on request.

Tests of the worker and the overhead benchmark run it in place of a model. It has one weighted component (a
4x4 matrix), a denoising loop that multiplies noise by it, an optional image input and two outputs. Parameters
make a request wait at a gate, fail, run out of memory or kill its own process.

Processes find it through ``MUTOSCOPE_CARDS=tests.support.tinycard.card:CARD``.
"""
