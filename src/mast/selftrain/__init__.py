"""Self-training (App. "Self-training Operator and Two-Stage Curriculum"): the only loop in the data's flow.

``pseudo.py`` is the operator Π_q; ``rounds.py`` repeats pseudo-labels → Stage 1 → Stage 2.
"""
