"""How is the command line run as a module? `python -m planner.cli`."""

import sys

from planner.cli.entry import main

sys.exit(main())
