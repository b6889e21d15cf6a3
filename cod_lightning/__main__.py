"""`python -m cod_lightning`."""

import sys

from cod_lightning.cli import main

sys.exit(main())
