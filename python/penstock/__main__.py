"""``python -m penstock`` is the command ``penstock``."""

import sys

from penstock._cli import main

sys.exit(main())
