"""Rewards served as cards: they score pictures and clips through the same engine and scheduler.

common/  what every reward card has: its slots, the sample it looks at, the loop that scores it
scene/   reward-scene: does a picture or clip show the starter scene that the prompt describes?
ocr/     reward-ocr: is the wanted text written in it?
check/   scene-check: the same question, answered by code that no reward was trained with
clip/    reward-clip: how near are picture and prompt to a CLIP model?
"""
