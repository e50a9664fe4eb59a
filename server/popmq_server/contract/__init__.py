"""The seam: what an engine offers to the protocols, in small typed protocols, and what it may lack."""
