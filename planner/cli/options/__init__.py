"""Which options do several commands share, and how are they read? As values, each checked, none passed over."""
