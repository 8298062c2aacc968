"""Online training: rollouts, advantages, objectives, methods, weight sync.

    groups           what a group of rollouts is on the record
    rollout_card     the card that makes the record; rollout_program: how
    sentinels        whether a policy decays; curves: how it fared, as series for charts
    audit            recorded log-probabilities, recomputed
    advantages       what a sample is worth beside the others of its group
    methods/         objectives

What flows and card declarations read (groups, rollout_card) imports no torch.
"""
