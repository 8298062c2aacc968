"""What every reward card has.

parameters  slots, parameters and recipe of a reward card; no torch
sample      what is looked at: a picture, or frames of a clip
loop        the loop that drives a scorer and turns its verdict into a reward
"""
