"""Fine-tuning and linear probes of models of images: runs of the one loop that learn labels and hide nothing.

``config`` has the options and recipes, ``data`` the batches with ``mixing`` and ``randaugment``, ``classifier`` the
model and what it keeps of a pretrained one, ``task`` the loss, ``evaluate`` the scores, ``domain`` what opens a
finished run, ``run`` a run from plan to scores, and ``command`` is ``r2mae finetune``, which ``declared`` describes.
"""
