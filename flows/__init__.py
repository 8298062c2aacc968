"""Prefect flows, grouped by purpose.

    parameters   the annotated types that become a workflow's form
    generate/    flows that make media, and score it
    maintenance/ flows that keep the platform in order

Importing this package registers every workflow. It needs no GPU stack.
"""

from mutoscope.flows.generate import image_to_video, score, serve, text_to_film, text_to_image, text_to_video
from mutoscope.flows.maintenance import collect, reap, report, train_starter, verify

__all__ = [
    "collect",
    "image_to_video",
    "reap",
    "report",
    "score",
    "serve",
    "text_to_film",
    "text_to_image",
    "text_to_video",
    "train_starter",
    "verify",
]
