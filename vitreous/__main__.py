"""`python -m vitreous`, as torchrun needs it."""

import sys

from vitreous.cli.main import main

sys.exit(main())
