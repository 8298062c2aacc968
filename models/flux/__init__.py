"""FLUX.1 text to image: card ``flux-t2i``.

``card`` declares it and ``folder`` inspects a folder of weights, both without torch; ``components`` loads the
real classes and ``program`` composes text encoding, denoising and decoding.
"""
