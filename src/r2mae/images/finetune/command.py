"""``r2mae finetune RUN [DATA]``: fine-tune a pretrained model, or probe it, into a run folder."""

import json as json_text
import math
from pathlib import Path
from typing import Any

from r2mae.images.finetune.domain import DOMAIN
from r2mae.images.finetune.run import finetune, plan
from r2mae.training.folder import RunFolder
from r2mae.training.progress import ProgressBar


def run(run: str, data: str | None = None, *, out: str | None = None, json: bool = False, **options: Any) -> None:
    """Run the command; rerunning it resumes an interrupted run.

    Parameters
    ----------
    run : str
        Folder of the pretrained run.
    data : str, optional
        Images with classes.
    out : str, optional
        The run folder.
    json : bool
        Print JSON.
    **options
        Fields of :class:`~r2mae.images.finetune.config.FinetuneConfig`.
    """
    config = plan(run, options, data)
    DOMAIN.check(config)
    probe = config.probe == "linear"
    where = Path(out or Path(run) / f"{'probe' if probe else 'finetune'}-seed{config.seed}")
    was_finished = RunFolder(where).trained
    results = finetune(config, where, reporter=ProgressBar(f"{config.data.source}, {'probe' if probe else 'finetune'}"))
    if json:
        print(json_text.dumps(_json_ready({"run": str(where), **results}), indent=2))
        return
    if was_finished:
        print(f"{where} is finished already; nothing was trained")
    for metric in DOMAIN.metrics_of(config):
        if metric.name in results["scores"]:
            print(f"{metric.label:<16} {metric.arrow} {results['scores'][metric.name]:.4f}")
    print(config.measured_in_words())
    print(f"model and results are in {where}")


def _json_ready(values: dict[str, Any]) -> dict[str, Any]:
    """Return the results with None for scores that are not finite, which JSON cannot represent."""
    scores = {name: value if math.isfinite(value) else None for name, value in values["scores"].items()}
    return {**values, "scores": scores}
