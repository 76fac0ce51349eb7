"""Weights of vision transformers under the names of timm, transformers and the original MAE, read and written.

- ``names``: one library's names of parameters from another's;
- ``files``: what a file or folder of weights holds, without running code of it;
- ``positions``: embeddings of positions for another grid of patches;
- ``init``: a model begins with such weights (``--init``);
- ``export``: a finished run in another layout (``r2mae export``).

The names of our own models are those of the original MAE, and its encoder's are timm's. No torch until a module is
imported.
"""
