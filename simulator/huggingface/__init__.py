"""Which shape does a published `config.json` describe?"""
