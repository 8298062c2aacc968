"""Where bytes and rows meet: checks, collection, archives and pages over a store and a catalog together.

The store knows digests and the catalog knows rows; neither imports the other. What must hold between them,
that every row has its bytes and every byte its reason, is kept here.
"""
