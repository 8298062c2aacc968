"""Wan video: cards ``wan-i2v``, ``wan-t2v`` and ``wan-adaptive``, from the starter model to Wan2.1 and 2.2.

``card`` and ``adaptive_card`` declare them and ``folder`` inspects a folder of weights, without torch;
``components`` loads the real classes; ``program`` composes prompt and image encoding, the loop of ``denoise``
and decoding by the shared ``video_codec``; ``adaptive`` leaves steps out of that loop.
"""
