"""Bytes: a content-addressed store on fsspec and the codecs of each medium."""
