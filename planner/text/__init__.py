"""How are answers written? Units, numbers, blocks of text, pages."""
