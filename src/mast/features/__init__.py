"""From sound to what the model sees: Kaldi log-mel, and the statistics it is normalised by."""
