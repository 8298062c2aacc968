"""Unified cards: refiners and a generator as disjoint experts of one card."""
