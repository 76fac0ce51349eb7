"""Fine-tuning and linear probes of models of images: runs of the one loop that learn labels and hide nothing.

``run`` is the command ``r2mae finetune``, and ``declared`` describes it. ``config`` has the options and recipes,
``data`` the batches and scores, ``classifier`` the models and their task, and ``domain`` opens a finished run.
"""
