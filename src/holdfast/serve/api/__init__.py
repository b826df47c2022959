"""The client API under `/api/v1`: what programs and people ask of a control plane. `router.router` is all of it."""
