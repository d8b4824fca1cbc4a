"""How do answers differ, and what causes each difference?"""
