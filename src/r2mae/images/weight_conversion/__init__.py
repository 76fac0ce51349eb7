"""Weights of vision transformers, read from other libraries' files (``load``) and written for them (``export``)."""
