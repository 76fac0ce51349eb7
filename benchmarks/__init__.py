"""Benchmarks. They are commands, not tests. Every claim is a ratio to a named peer, measured in one run."""
