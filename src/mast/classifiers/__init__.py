"""Other people's classifiers give boxes their names: BirdNET, or any model as ONNX or TFLite."""
