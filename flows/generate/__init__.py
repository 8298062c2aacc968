"""Flows that make media.

    text_to_image    prompt -> image
    image_to_video   image and prompt -> video
    text_to_video    prompt -> image -> video

One file each, named after its flow.
"""
