"""Which options do several commands share, and how are they read? As checked values, none silently ignored."""
