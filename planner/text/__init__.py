"""In which words and forms are answers written? Units, numbers, blocks of text, pages."""
