"""scene-check: the starter scenes' independent judge as a card.

    card     the declaration
    program  the judge's report as a reward

It has no weights: it reads pixels with `mutoscope.models.starter.checker`, which shares nothing with the
renderer, nor with the network of reward-scene. So it can say whether a policy that was taught by a reward got
better, or only better at that reward.
"""
