"""``python -m benchmarks [NAME ...]``: run all benchmarks, or those named."""

import argparse
import ast
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

NAMES = (
    *("cells", "images", "image_loader", "loop", "masking", "probes", "startup", "text", "theory", "unet", "fills"),
    *("genome_step", "onednn", "stacked", "sweep", "variants", "backed", "genome", "many_masks"),
)
LONG = ("backed", "genome", "many_masks")  # write files of several GB or take long, so they run only if they are named


def main(argv: Sequence[str] | None = None) -> int:
    """Run them one after the other."""
    parser = argparse.ArgumentParser(
        "python -m benchmarks",
        description="Run the benchmarks that are named, or all but the long ones.",
        epilog="\n".join(f"  {name:14}{_told(name)}" for name in NAMES),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="one of the list below")
    names = parser.parse_args(argv).names
    if unknown := [name for name in names if name not in NAMES]:
        parser.error(f"unknown benchmark {unknown[0]!r}: choose from {', '.join(NAMES)}")
    for name in names or [name for name in NAMES if name not in LONG]:
        print(f"== {name}", flush=True)
        import_module(f"benchmarks.{name}").main([])
    return 0


def _told(name: str) -> str:
    """Return the first line of a benchmark's docstring, without importing its libraries."""
    tree = ast.parse((Path(__file__).parent / f"{name}.py").read_text(encoding="utf-8"))
    first = (ast.get_docstring(tree) or "").splitlines()[0]
    return f"{first} (runs only if named)" if name in LONG else first


if __name__ == "__main__":
    raise SystemExit(main())
