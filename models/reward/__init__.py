"""Rewards served as cards: they score pictures and videos through the same engine."""
