"""The learner: tensors in, boxes out. Knows nothing of recordings, annotations or recipes.

The paper on the left, this folder on the right:

| paper | file |
|---|---|
| Sec. Methods, "Self-supervised pretraining" (L_MAE) | ``mae.py``, masks in ``masking.py`` |
| Sec. "Detector Design", the ViT encoder E_φ | ``encoder.py`` (layers in ``transformer.py``) |
| App. "Adapter Designs", A_ψ | ``adapters.py`` (layers in ``blocks.py``) |
| App. "Architecture Details", neck N_γ | ``pyramid.py`` |
| App. "Architecture Details", head D_θ | ``head.py``, its places on the grid in ``points.py`` |
| (ours) batches of boxes, overlap, RoIAlign | ``boxes.py`` (torchvision's kernels in ``kernels.py``) |
| App. "Architecture Details", ATSS and centre sampling | ``assign.py`` |
| Sec. Methods, L_cls, L_box, L_iou | ``losses.py`` |
| Sec. Methods, L_con | ``contrastive.py`` |
| App. "Evaluation Details", class-agnostic NMS | ``decode.py`` |
| Sec. Methods, L_det + λ_con L_con; everything together | ``mast_detector.py`` |
| App. "Theoretical Analysis of Self-Training", weighting | ``MastDetector.loss(weights=…)`` |
| (ours) sizes of all of them; what a model says about itself | ``architecture.py``, ``card.py`` |
| (ours) what is on disk; AudioMAE's public weights | ``checkpoint.py`` |

Letters: B batch, T frames, F mel bins, L tokens, D encoder width, C pyramid channels, R points, M boxes.
Spectrograms are ``(B, 1, T, F)``; boxes are rows ``(t1, f1, t2, f2)`` in cells of that grid; strides are
always two numbers, ``(time, frequency)``.
"""
