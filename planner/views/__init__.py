"""How does an answer look on a terminal?"""
