"""Prefect flows, grouped by purpose.

    parameters   the annotated types that become a workflow's form; lists: those of several values
    generate/    flows that make media, and score it
    maintenance/ flows that keep the platform in order
    rl/          flows that sample, score and train
    shipped      all of them, registered by importing it

The package itself imports none: a process that runs one workflow is not to wait for the others. None needs
the GPU stack.
"""
