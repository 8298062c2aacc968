"""reward-clip: how near are picture and prompt to a CLIP model?

card        the declaration
folder      inspection of a CLIP model's folder
components  loading
program     the scorer
"""
