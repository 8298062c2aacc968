"""Flows of reinforcement learning.

    collect_rollouts  prompts -> groups of rollouts, scored and on the record
    data_generation   the same by schedule, within a budget

What they are made of:

    asks        what is asked for, and the types of the forms
    settling    a collection, checked and pinned before anything runs
    stages      the cards that a sample passes through
    sampling    one sample and its rewards
    grouping    one group: places filled, refilled, put on record
    collecting  many groups side by side
    collected   groups that were made, for those who read them
"""
