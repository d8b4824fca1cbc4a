"""What do you type for operator traces? `capplan trace`, a module for each of its commands."""
