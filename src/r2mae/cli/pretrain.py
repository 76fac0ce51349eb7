"""``r2mae pretrain DOMAIN DATA``: pretrain one model into a run folder; an interrupted run is resumed."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from r2mae.cli.configs import config_parser, print_config
from r2mae.cli.parsing import loading
from r2mae.domains.lookup import check_run
from r2mae.domains.sources import Sources, make_config
from r2mae.fields import option
from r2mae.training.config import RunConfig
from r2mae.training.ranks import is_first, is_relaunched


@dataclass(frozen=True)
class Options:
    """Pretrain one model. The same command resumes an interrupted run.

    Parameters
    ----------
    out : str, optional
        Run folder; by default named after data, scheme and seed in runs/.
    config : str, optional
        YAML file with any of these options, such as a run's config.yaml.
    print_config : bool
        Print the configuration as such a file, and end.
    json : bool
        Print JSON, for scripts.
    """

    out: str | None = option(None, metavar="RUN")
    config: str | None = option(None, metavar="FILE", common=False)
    print_config: bool = option(False, common=False)
    json: bool = option(False, common=False)


def plan(sources: Sources, options: Options, given: Mapping[str, Any]) -> tuple[RunConfig, Path]:
    """Return the configuration and the folder of the run."""
    config = make_config(sources, given)
    name = f"{Path(config.data.source).stem}-{config.scheme.name}-seed{config.seed}"
    return config, Path(options.out or f"runs/{name}")


def run(sources: Sources, options: Options, given: Mapping[str, Any]) -> int:
    """Run the command."""
    domain, (config, out) = sources.domain, plan(sources, options, given)
    if options.print_config:
        print_config(config)
        return 0
    check_run(domain, config, [out])

    label = f"{config.data.source}, {config.scheme.name}"
    if is_first() and not is_relaunched() and not options.json:
        print(f"{label}: model {config.model.name}, seed {config.seed}, in {out}", flush=True)
    with loading():
        from r2mae.compare.scores import print_scores
        from r2mae.files import print_json
        from r2mae.progress import ProgressBar, counting_bar
        from r2mae.training.pretraining import pretrain

    with counting_bar("measuring", counted=False, transient=True) as progress:
        fitted, results = pretrain(config, domain, out, reporter=ProgressBar(label), progress=progress, before=True)
    if not is_first():
        return 0
    if options.json:
        print_json({"run": str(out), "worked": fitted.trained_now, **results})
        return 0
    if not fitted.trained_now:
        print(f"{out} is finished already; nothing was trained")
    columns = {config.scheme.name: results["scores"]}
    if "before" in results:
        columns = {"before training": results["before"], "after": results["scores"]}
    print_scores(columns, domain.metrics_of(config))
    if method := config.measured_in_words():
        print(method)
    print(f"model and results are in {out}")
    return 0


_EXAMPLE = "--scheme r2mae --low {ratios.low} --high {ratios.high} --out runs/a"
parser = partial(config_parser, "pretrain", Options, _EXAMPLE, run)
