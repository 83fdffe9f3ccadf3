"""Self-training (App. "Self-training Operator and Two-Stage Curriculum"): the only loop in the data's flow.

``pseudo.py`` is the operator Π_q and ``policy.py`` its threshold q(·); ``rounds.py`` repeats pseudo-labels → Stage 1 →
Stage 2; ``watch.py`` measures each model on what no choice may look at.
"""
