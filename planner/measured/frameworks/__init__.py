"""What do frameworks do where a row does not say? Their names, their releases and their habits."""
