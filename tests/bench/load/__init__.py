"""Many tiny runs from many flows at once, for `bench_load`.

flows    the process in which some of the flows run
groups   the processor time of groups of processes
account  what the catalog says about the runs afterwards
"""
