"""How fast is capplan, and how near to measurements? Programs that answer it, run by hand."""
