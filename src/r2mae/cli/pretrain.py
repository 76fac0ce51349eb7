"""``r2mae pretrain DOMAIN DATA``: pretrain one model into a run folder; an interrupted run is resumed."""

from collections.abc import Sequence
from pathlib import Path

from r2mae.cli.early import check_run, loading
from r2mae.cli.parsing import Parser, add_config, describe, example_data, make_config, print_config, read_subject


def run(words: Sequence[str]) -> int:
    """Run the command."""
    subject = read_subject("pretrain", words)
    parser = Parser(
        f"r2mae pretrain {subject.domain.name} DATA",
        f"Pretrain one model. The same command resumes an interrupted run. {describe(subject)}",
        f"r2mae pretrain {example_data(subject)} --scheme r2mae --out runs/a",
    )
    add_config(parser, subject)
    parser.add_argument("--out", type=str, help="Run folder; by default named after data, scheme and seed in runs/.")
    parser.add_argument("--json", action="store_true", help="Print JSON, for scripts.")
    values = parser.read(subject.words)
    config = make_config(subject, values)
    if values["print_config"]:
        print_config(config)
        return 0
    out = Path(values["out"] or f"runs/{Path(config.data).stem}-{config.scheme.name}-seed{config.seed}")
    check_run(subject.domain, config, [out])

    with loading():
        from r2mae.cli.show import print_json, scores_table
        from r2mae.training.pretrain import pretrain
        from r2mae.training.progress import ProgressBar, counting_bar

    with counting_bar("measuring", counted=False, transient=True) as progress:
        fitted, results = pretrain(
            config, subject.domain, out, reporter=ProgressBar(f"{config.data}, {config.scheme.name}"), progress=progress
        )
    if values["json"]:
        print_json({"run": str(out), "worked": fitted.trained_now, **results})
        return 0
    if not fitted.trained_now:
        print(f"{out} is finished already; nothing was trained")
    scores_table({config.scheme.name: results["scores"]}, subject.domain.metrics_of(config))
    if method := config.measured_in_words():
        print(method)
    print(f"model and results are in {out}")
    return 0
