"""Reading by queue and offset: pulls, positions of groups, consume modes, and what groups that pull send back."""
