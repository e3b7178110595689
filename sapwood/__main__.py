"""`python -m sapwood`: the same as the command `sapwood`."""

from __future__ import annotations

import sys

from sapwood.console import main

if __name__ == "__main__":
    sys.exit(main())
