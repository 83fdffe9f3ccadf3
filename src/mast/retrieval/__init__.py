"""Box embeddings: a store that can be searched, look-alikes, names from annotated examples.

Nothing is imported here: :mod:`mast.retrieval.store` needs LanceDB, :mod:`mast.retrieval.embedding` torch.
"""
