"""The models of text by name, one module each. No torch.

A model's module has

- ``Settings``, a :class:`r2mae.training.models.ModelSettings`: its fields are the options ``--model.NAME``, its
  docstring their help;
- ``build(architecture)``, which returns a :class:`r2mae.text.task.TokenTask` and a freshly initialised
  :class:`r2mae.text.task.TokenModel`. The mapping is saved in the run folder: `model`, the settings, `vocab_size`,
  `length` (of the longest sequence), the numbers of the special tokens (`bos_id`, `eos_id`, `pad_id`, `mask_id`,
  `special_ids`), `corruption`, `exact`, and the tokenizer (`tokenizer`, `roles`).
"""
