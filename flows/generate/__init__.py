"""Flows that make media, and score it.

    text_to_image    prompt -> image
    image_to_video   image and prompt -> video
    text_to_video    prompt -> image -> video
    text_to_film     prompt -> video with sound
    serve            any card, by its id
    score            image or video, and what is wanted -> reward

One file each, named after its flow.
"""
