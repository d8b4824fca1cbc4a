"""How is capplan run where no command is installed? `python -m planner`."""

import sys

from planner.cli.entry import main

sys.exit(main())
