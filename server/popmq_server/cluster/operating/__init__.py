"""What an operator asks about a cluster: `popmq cluster`, which needs no gateway, and ListBrokers of a gateway.

command line ─▶ questions.py ─▶ survey.py     the brokers: 106, 28, 26, 907
                             ─▶ judging.py    which settings of theirs weaken a promise
                             ─▶ catalog/      the layout of a topic
engine ───────▶ listed.py ────▶ survey.py
"""
