"""Benchmarks: commands, not tests. Every claim is a ratio against a named peer in one run."""
