"""What families share: reading card folders and loading their components.

``files`` and ``folder`` read and check a diffusers-format folder without torch; ``loading`` turns component
folders into modules, tokenizers and schedules with the real diffusers and transformers classes.

Sampling: ``flow`` is the denoising loop of every flow-matching family and ``solver`` its integration;
``reuse`` leaves steps out of it, and ``quality`` says what that cost. ``in_turn`` joins loops to one node,
``prompt`` tells of cut text. ``branches`` declares that denoising can be left at a step and taken up from
there, ``branching`` does it.

Decoding pictures: ``tiles`` is a VAE's decode as steps of the engine, ``tile_decoders`` how the shared VAEs
decode one tile and ``tiling`` what recipes and requests say about them; ``video_codec`` is the video VAE with
its normalisation.
"""
