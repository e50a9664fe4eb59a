"""PopMQ behind the seams of other frameworks: each package here is an extra of its own, and imports its framework.

None of them is imported by `popmq`; a program that uses one names it in the settings of its framework.
"""
