"""manage.py popmq_worker."""
