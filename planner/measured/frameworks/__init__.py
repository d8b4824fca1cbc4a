"""What do frameworks do where a row does not say? Their names, releases and habits."""
