"""`popmq migrate`: the topics of one broker, with their groups, to another one."""
