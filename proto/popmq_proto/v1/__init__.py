"""Generated from proto/popmq/v1 by proto/generate.py."""
