"""The brokers that PopMQ is compared with (install.py, brokers.py), and RocketMQ's own proxies (doors.py)."""
