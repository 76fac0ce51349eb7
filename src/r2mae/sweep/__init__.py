"""Runs by the dozen: what a run of a sweep is, the processes that run them, and what they show meanwhile."""
