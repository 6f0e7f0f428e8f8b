"""Routes about a whole project: approvals, audit, secrets, policy, trust, manifests, the machine."""
