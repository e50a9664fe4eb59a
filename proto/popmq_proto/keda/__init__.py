"""Generated from proto/keda by proto/generate.py."""
