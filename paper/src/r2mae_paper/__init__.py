"""Figures and tables of the paper, each a module that computes, writes and draws it (see :mod:`.study`)."""
