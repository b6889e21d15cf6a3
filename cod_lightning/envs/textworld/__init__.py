"""TextWorld: houses that it generates, and things to find in them."""

"""x"""
