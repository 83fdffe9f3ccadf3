"""A trained detector for other programs and other people: an ONNX graph, a folder for a model hub."""

from mast.export.hub_folder import write_hub_folder
from mast.export.onnx_folder import OnnxReport, write_onnx_folder

__all__ = ["OnnxReport", "write_hub_folder", "write_onnx_folder"]
