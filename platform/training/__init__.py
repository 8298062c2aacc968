"""Online training: rollouts, advantages, objectives, methods, weight sync.

groups      what a group of rollouts is on the record
advantages  the samples of a group against each other
methods     what each method of training maximises
"""
