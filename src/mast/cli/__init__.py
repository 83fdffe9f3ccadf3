"""The command line: parse, call, print. One small file per command; heavy imports stay inside functions."""
