"""``python -m penstock`` is the command ``penstock``."""

from penstock._cli import main

main()
