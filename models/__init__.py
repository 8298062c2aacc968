"""Model families, one folder each.

A family imports engine contracts and models.common, never another family.
"""
