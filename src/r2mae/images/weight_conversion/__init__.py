"""Weights of vision transformers under the names of timm, transformers and the original MAE, read and written.

- ``names``: tables of the names of parameters;
- ``load``: starts a model with the weights of a file or folder (``--init``), with positions for its own grid;
- ``export``: writes a finished run in another layout (``r2mae export``).

The names of our own models are those of the original MAE, and its encoder's are timm's. No torch until a module is
imported.
"""
