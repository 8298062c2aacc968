"""Parity gates: what must be equal to the bit on every card, and controls that show a gate can fail."""
