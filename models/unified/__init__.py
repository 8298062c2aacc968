"""Composed cards: language models rewrite the prompt, a generator draws it.

``unirl-qwenflux`` has one refiner, ``multi-expert`` a chain of them. A composed card is made of the cards of
its parts, which it knows by their ids alone: each part inspects, loads and builds itself.

``composition`` says what is made of what and how the parts' names go together; ``card`` declares the cards,
``folder`` inspects a folder and ``assembly`` writes one out of folders of the parts (``__main__`` from the
shell), all without torch; ``components`` loads them, ``program`` joins the parts' programs and ``chain``
drives a refiner in its place.
"""
