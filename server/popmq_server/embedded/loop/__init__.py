"""The part of the embedded engine on the event loop: its life, long polls, sessions."""
