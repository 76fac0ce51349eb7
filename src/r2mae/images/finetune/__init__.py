"""Fine-tuning and linear probes of models of images: runs of the one loop that learn labels and hide nothing.

``config`` has the options and recipes, ``data`` the batches with ``mixing`` and ``randaugment``, ``encoders`` what is
kept of a pretrained model, ``classifier`` the model, ``task`` the loss, ``wing`` what opens a finished run, and
``command`` is ``r2mae finetune``.
"""
