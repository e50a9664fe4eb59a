"""What an operator asks about a cluster: `popmq cluster`. It calls name servers and brokers; no gateway has to run.

command line ─▶ questions.py ─▶ survey.py     the brokers: 106, 28, 26, 907
                             ─▶ judging.py    which settings of theirs weaken a promise
                             ─▶ catalog/      the layout of a topic
"""
