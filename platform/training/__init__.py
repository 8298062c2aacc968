"""Online training: rollouts, advantages, objectives, methods, weight sync.

groups      what a group of rollouts is on the record
"""
