"""reward-scene: does a picture or clip show the starter scene that the prompt describes?

    card        the declaration
    folder      inspection of a folder of weights
    components  loading
    net         the network that reads a picture
    criteria    from what was read to graded criteria, and to one score
    program     the scorer

Its weights are trained by `mutoscope.models.starter.scorer_train`.
"""
