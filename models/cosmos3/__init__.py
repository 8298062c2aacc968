"""Cosmos3: card ``cosmos3-omni``, one transformer that reasons in words and draws videos.

Its layers hold two towers, a causal one for text and one for latents that reads the text's keys and values. A
request drives both: an autoregressive loop rewrites the prompt, a denoising loop draws what it says.

``card`` declares it and ``folder`` inspects a folder of weights, both without torch; ``components`` loads the
real classes. ``prompt`` is the text around a prompt that the weights were trained on, ``towers`` the forward
passes of either tower, ``reason`` and ``denoise`` the two loops, and ``program`` puts them together.
"""
