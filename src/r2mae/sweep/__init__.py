"""Runs by the dozen: what a cell of a sweep is, the processes that run them, and what they show meanwhile."""
