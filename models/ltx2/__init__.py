"""LTX-2: card ``ltx2-av``, video with sound from text, in one stage or two.

``card`` declares it and ``folder`` inspects a folder of weights, both without torch; ``components`` loads the
real classes; ``program`` composes ``text``, ``generate`` and ``decode``. The loop through both stages is
``generate``: ``latents`` are what it moves, ``forward`` how it asks the transformer, ``guidance`` what it
makes of the answers.
"""
