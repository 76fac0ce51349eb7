"""Fine-tuning models of images on labels: runs of the one loop that hide nothing.

``run`` is the command ``r2mae finetune``; ``config`` has its options and recipes, ``data`` the batches and scores,
``classifier`` the models and their task, and ``domain`` opens a finished run.
"""
