"""What each method of training maximises: small functions of tensors, differentiated as they stand.

    ppo         clipped policy gradient of a step's log-probability; KL, GRPO-Guard, DPPO, the ratio band
    flow_grpo   Flow-GRPO: those pieces put together for the stochastic steps of a flow
    nft         DiffusionNFT: likelihood-free, from a sample and its optimality
    token_pg    policy gradient of a language model's tokens
    distill     a student of few steps from the ends of its teacher's trajectories
    credit      who among several experts earned a reward; plain Python

Everything is float32 and everything that a function reports is what its gradient descends. Losses come one to
a sample, (B,), so that a batch may be split over several backward passes: divide by the whole batch's count.

Shape suffixes
    B  samples, or steps of samples          T  tokens
"""
