"""Prefect flows, grouped by purpose.

    parameters   the annotated types that become a workflow's form
    generate/    flows that make media

Importing this package registers every workflow. It needs no GPU stack.
"""

from mutoscope.flows.generate import image_to_video, text_to_image, text_to_video

__all__ = ["image_to_video", "text_to_image", "text_to_video"]
