"""Box embeddings: a searchable store, look-alikes, and names from annotated examples.

Nothing is imported here: :mod:`mast.retrieval.embedding` needs torch, the others do not.
"""
