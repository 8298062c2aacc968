"""What `bench_rollouts.py` sets beside the system: the loop that a script has."""
