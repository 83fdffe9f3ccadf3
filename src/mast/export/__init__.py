"""A trained detector for other programs and other people: an ONNX graph, a folder for a model hub."""
