"""Prompt refiners: card ``refiner-lm``, a causal language model that rewrites a prompt.

``card`` declares it and ``folder`` inspects a folder of weights, both without torch; ``components`` loads the
real classes, ``prompt`` puts a request's prompt into the model's words and ``program`` decodes the answer.
"""
