"""What families share: reading card folders and loading their components.

``files`` and ``folder`` read and check a diffusers-format folder without torch; ``loading`` turns component
folders into modules, tokenizers and schedules with the real diffusers and transformers classes.

Sampling: ``flow`` is the denoising loop of every flow-matching family and ``solver`` its integration; ``reuse``
leaves steps out of it, and ``quality`` says what that cost. ``in_turn`` joins loops to one node, ``prompt`` tells
of cut text.
"""
