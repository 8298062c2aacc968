"""Flows that make media, and score it.

    text_to_image    prompt -> image
    image_to_video   image and prompt -> video
    text_to_video    prompt -> image -> video
    text_to_film     prompt -> video with sound
    extend_video     video and prompt -> longer video
    t2i_i2v_extend   prompt -> image -> video -> longer video
    fan_out          prompts, seeds -> images
    best_of_n        prompt -> images -> the one with the best reward
    branch_image     prompt and variations -> images that share their beginning
    prompt_sweep     prompts, seeds, weight versions -> images on a contact sheet
    serve            any card, by its id
    score            image or video, and what is wanted -> reward

One file each, named after its flow.
"""
