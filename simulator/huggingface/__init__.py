"""Which model shape does a published `config.json` describe?"""
