"""The models of genomes by name, one module each. No torch.

A model's module has ``Settings``, a :class:`r2mae.training.models.ModelSettings`, whose fields are the options
``--model.NAME``, and ``build(architecture)``, which returns a :class:`r2mae.genome.task.AlignmentTask` and a freshly
initialised model. The mapping is saved in the run folder: `model`, the settings, `window` (the longest), `reference`
and `species` (names; the model's species other than the reference, in the order of its embedding), `corruption`,
`exact`, `repeat_weight` and `flip`.
"""
