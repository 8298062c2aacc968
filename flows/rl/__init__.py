"""Flows of reinforcement learning.

    collect_rollouts  prompts -> groups of rollouts, scored and on the record
    data_generation   the same by schedule, within a budget

What trainings are made of:

    training       the loop; course: what it was set up with, how far it has come
    configuration  all that decides its course, as JSON
    batches        what an iteration learns from
    checking       evaluations on the way: what is best, what gets worse, when to stop
    evaluate       fixed prompts and seeds, served and judged
    records        what it writes down
    drawing        pictures of it; telling: what the Prefect UI shows

What collections are made of:

    asks        what is asked for, and the types of the forms
    settling    a collection, checked and pinned before anything runs
    stages      the cards that a sample passes through
    sampling    one sample and its rewards
    grouping    one group: places filled, refilled, put on record
    collecting  many groups side by side
    collected   groups that were made, for those who read them
"""
