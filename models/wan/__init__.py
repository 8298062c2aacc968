"""Wan image to video."""
