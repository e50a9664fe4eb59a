"""No models. Django tells an app about `migrate` only if it has this module."""
