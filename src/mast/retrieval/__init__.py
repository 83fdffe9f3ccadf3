"""Box embeddings: a store that can be searched, look-alikes, names from annotated examples.

Nothing is imported here: :mod:`mast.retrieval.embedding` needs torch, the others do not.
"""
