"""A chain of steps, each of which takes the artifact of the one before and writes one of 64 KiB: the same
work in our platform and in its neighbours, for `bench_chain`.

    link          what a step computes, and the protocol by which `bench_chain` drives a system's process
    requirements  the neighbours, one a line; each is installed in an environment of its own
    systems       which there are: interpreter, script, environment
    card          the step as a card of ours; workflow: the chain as a workflow
    run_*         one system each, run by the interpreter that has its package
"""
