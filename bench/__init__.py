"""Measures PopMQ: throughput, latency and counted work, alone and beside other brokers."""
