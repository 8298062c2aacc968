"""What every reward card has.

caption     the text that starter scenes are held against; no torch
parameters  slots, parameters and recipe of a reward card; no torch
sample      what is looked at: a picture, or frames of a clip
loop        the loop that drives a scorer and turns its verdict into a reward
"""
