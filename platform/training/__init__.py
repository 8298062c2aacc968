"""Online training: rollouts, advantages, objectives, methods, weight sync.

    groups           what a group of rollouts is on the record
    rollout_card     the card that makes the record; rollout_program: how
    sentinels        whether a policy decays; curves: how it fared, as series for charts
    notes            what a training noted, read again; tensorboard: its curves for TensorBoard
    audit            recorded log-probabilities, recomputed
    advantages       what a sample is worth beside the others of its group
    methods/         what is maximised: losses of tensors, differentiated as they stand

A training step, as a run of a trainer:

    cards            the trainers and their parameters
    program          the loop whose plans are a step's passes; setup: a request as a step; step: the step
    batch            the samples of a step, and what is refused
    policy           velocities at recorded places, log-probabilities of tokens
    objectives       what a method asks of some samples; flow_objectives, token_objective: each method's
    learner          what learns, where it begins and what it leaves; trainable: full weights or a LoRA
    optimiser        AdamW; state: what one step leaves to the next; metrics: what it tells

What flows and card declarations read (groups, rollout_card, cards, metrics) imports no torch.
"""
