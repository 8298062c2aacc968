"""The starter world: models small enough to train on a laptop, and everything needed to train them again.

``grammar`` says what can be asked for, ``render`` and ``motion`` draw it, ``checker`` judges pictures from
pixels alone (it shares no code with the renderer). ``tokenizer``, ``text``, ``image_vae`` and ``image_dit``
are the stages of the image model; each is a ``stage.Stage``, run in order by the recipe in
``image_recipe``. The trained folders live in ``weights/`` in diffusers format; ``evaluate`` measures them
on held-out captions.
"""
