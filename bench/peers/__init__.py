"""The brokers that PopMQ is compared with: how they are installed (install.py) and started (brokers.py)."""
