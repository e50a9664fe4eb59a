"""Each request that this package can make, as a function of typed arguments, and what its answer says.

Nothing here sends: a caller gives the request to Cluster.call or Peer.call, and the answer to the reader beside it.
"""
