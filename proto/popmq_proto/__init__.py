"""The generated stubs of the contract; see proto/ for the sources and proto/generate.py for how they are made."""
