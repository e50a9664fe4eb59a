"""Generated from proto/popmq/store/v1 by proto/generate.py."""
