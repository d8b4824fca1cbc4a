"""How fast is capplan, and how close is it to measurements? Programs that answer this, run by hand."""
