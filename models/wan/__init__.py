"""Wan image to video: card ``wan-i2v``, from the starter model to Wan2.1 and Wan2.2.

``card`` declares it and ``folder`` inspects a folder of weights, both without torch; ``components`` loads the
real classes; ``program`` composes prompt and image encoding, the loop of ``denoise``, driven by a ``solver``,
and decoding by the shared ``video_codec``.
"""
