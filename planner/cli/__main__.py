"""How is the command run without its name? `python -m planner.cli`."""

import sys

from planner.cli.entry import main

sys.exit(main())
