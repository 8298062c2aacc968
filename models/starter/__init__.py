"""The starter world: models small enough to train on a laptop, and everything needed to train them again.

``grammar`` says what can be asked for, ``render`` and ``motion`` draw it, ``checker`` judges pictures from
pixels alone (it shares no code with the renderer). ``tokenizer``, ``text``, ``image_vae`` and ``image_dit``
are the stages of the image model; each is a ``stage.Stage``, run in order by the recipe in
``image_recipe``. ``terse`` is the language of hasty prompts, which the refiner of ``refiner_lm`` writes out
in full. ``scorer_data`` is what the scene scorer of the reward cards learns in ``scorer_train``. The trained
folders live in ``weights/`` as their libraries save them; ``evaluate``, ``video_evaluate``,
``refiner_evaluate`` and ``scorer_evaluate`` measure them on what is held out.
"""
