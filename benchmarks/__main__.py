"""``python -m benchmarks [NAME ...]``: run all benchmarks, or those named."""

import sys
from importlib import import_module

NAMES = ("cells", "genome", "loop", "masking", "probes", "startup", "text", "theory", "tricks", "backed")
LONG = ("backed", "genome")  # write files of several GB: by name alone


def main() -> int:
    """Run them one after the other."""
    for name in sys.argv[1:] or [name for name in NAMES if name not in LONG]:
        if name not in NAMES:
            print(f"unknown benchmark {name!r}: choose from {', '.join(NAMES)}", file=sys.stderr)
            return 2
        print(f"== {name}", flush=True)
        import_module(f"benchmarks.{name}").main([])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
