"""What families share: reading card folders and loading their components.

``files`` and ``folder`` read and check a diffusers-format folder without torch; ``loading`` turns component
folders into modules, tokenizers and schedules with the real diffusers and transformers classes.
"""
