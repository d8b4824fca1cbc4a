"""What would this very plan come to? One design in full, what it holds where, and what simpler models say of it."""
