"""LTX-2: joint audio and video from text, in two stages."""
