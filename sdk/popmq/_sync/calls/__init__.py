"""The calls of a client by subject: `client.topics`, `client.groups`, …"""
