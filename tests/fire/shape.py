"""How the film under fire is divided. Apart from its workflows: importing those declares them, which is for
the processes that run them alone.
"""

REELS, STRIPS, LINKS = 4, 2, 7
PER_REEL = 1 + STRIPS * LINKS
RUNS = REELS * PER_REEL
"""Engine runs of one film."""
WORKFLOWS = 1 + REELS * (1 + STRIPS)
"""Workflow runs of one film."""
