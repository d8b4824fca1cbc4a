"""How is a job answered? Its designs are searched, one is recommended, and the answer goes where it is wanted."""
