"""``python -m r2mae`` is the command ``r2mae``."""

from r2mae.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
