"""Random mask ratios for models and trainers of other libraries; each module needs its own library alone.

========================  ======================================================================
module                    for
========================  ======================================================================
``transformers``          ``Trainer``: a collator for tokens, a callback that sets a model's ratio
``lightning``             ``Trainer`` of Lightning: the same callback
``masks``                 code in the manner of MAE, timm, lightly, BEiT and VideoMAE
``sklearn``               ``GaussianImputer`` and ``MaskedAutoencoderImputer`` fill in NaN
========================  ======================================================================
"""
