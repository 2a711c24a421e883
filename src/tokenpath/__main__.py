"""``python -m tokenpath`` is the command ``tokenpath``."""

from tokenpath.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
